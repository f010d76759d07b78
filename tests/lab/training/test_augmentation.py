import numpy as np
import pytest
import torch

from hitrate_lab.training.images.augmentation import Draws, alternate, crop, cutout, flip, mixed

CPU = torch.device("cpu")


def draws(rows=64, seed=0):
    return Draws(seed, rows, slice(0, rows), CPU)


def images(rows=64):
    return torch.randn(rows, 3, 8, 9, generator=torch.Generator().manual_seed(1))


def test_crops_are_the_shifts_of_a_mirrored_image():
    x = images()
    found = crop(x, 2, draws())
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect")
    places = set()
    for row in range(len(x)):
        shifts = [
            (down, right)
            for down in range(5)
            for right in range(5)
            if np.array_equal(padded[row, :, down : down + 8, right : right + 9], found[row])
        ]
        assert len(shifts) == 1
        places.update(shifts)
    assert len(places) > 15


def test_a_share_is_flipped():
    x = images(1000)
    found = flip(x, 0.3, draws(1000))
    is_flipped = (found == x.flip(3)).flatten(1).all(1)
    is_kept = (found == x).flatten(1).all(1)
    assert bool((is_flipped ^ is_kept).all())
    assert 0.2 < float(is_flipped.float().mean()) < 0.4


def test_cutout_leaves_a_square_out():
    found = cutout(images(500), 4, draws(500))
    gone = (found == 0).all(1)
    assert int(gone.flatten(1).sum(1).max()) == 16
    assert int(gone.flatten(1).sum(1).min()) >= 4
    heights = gone.any(2).sum(1)
    widths = gone.any(1).sum(1)
    assert torch.equal(heights * widths, gone.flatten(1).sum(1))


def test_a_part_of_the_batch_draws_what_the_whole_would():
    x = images()
    whole = flip(crop(x, 2, draws()), 0.5, draws(seed=1))
    half = slice(32, 64)
    mine = crop(x[half], 2, Draws(0, 64, half, CPU))
    assert torch.equal(flip(mine, 0.5, Draws(1, 64, half, CPU)), whole[half])


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.4, 0.0), (0.0, 1.0)])
def test_targets_say_how_much_of_each_row_is_there(mixup, cutmix):
    # Each image is all of its class, so that its mean says what it is made of.
    target = torch.arange(8)
    x = target.float()[:, None, None, None].expand(8, 1, 10, 10)
    found, goal = mixed(x, target, 8, np.random.default_rng(3), mixup, cutmix)
    torch.testing.assert_close(goal.sum(1), torch.ones(8))
    torch.testing.assert_close(found.mean((1, 2, 3)), goal @ torch.arange(8.0))
    assert bool((goal.max(1).values < 1).any())


def test_the_last_of_an_odd_number_is_mixed_with_itself():
    x, target = torch.randn(3, 1, 4, 4), torch.tensor([0, 1, 2])
    found, goal = mixed(x, target, 3, np.random.default_rng(0), 0.4, 0.0)
    torch.testing.assert_close(found[2], x[2])
    torch.testing.assert_close(goal[2], torch.tensor([0.0, 0.0, 1.0]))


def test_images_take_turns_from_epoch_to_epoch():
    x = images()
    turn = torch.arange(64) % 2 == 0
    found = alternate(x, 1.0, Draws(0, 64, slice(0, 64), CPU, turn))
    assert torch.equal(found[::2], x[::2].flip(3)) and torch.equal(found[1::2], x[1::2])
