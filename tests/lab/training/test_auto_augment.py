"""Operations of AutoAugment against those of Pillow, which the policy was found with."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from hitrate_lab.training.images.augmentation import Draws, rotate, shift
from hitrate_lab.training.images.auto_augment import (
    CHANGE,
    DEGREES,
    OPERATIONS,
    POLICY,
    SHARE,
    SLOPE,
    STRONGEST,
    auto_augment,
)

CPU = torch.device("cpu")


def smooth_images(rows=12, side=32):
    """As photographs are: neighbours alike."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, 3, 6, 6, generator=generator)
    x = torch.nn.functional.interpolate(x, side, mode="bicubic").clamp(0, 1)
    return (x * 255).round() / 255


def moved(picture, a, b, c, d, e, f):
    """PIL counts from the corner of the first pixel; we from the middle."""
    half = picture.width / 2
    c, f = c + half - a * half - b * half, f + half - d * half - e * half
    return picture.transform(picture.size, Image.Transform.AFFINE, (a, b, c, d, e, f))


def enhanced(kind):
    return lambda picture, strength: kind(picture).enhance(1 + CHANGE * strength)


BY_PILLOW = {
    "autocontrast": lambda picture, _: ImageOps.autocontrast(picture),
    "brightness": enhanced(ImageEnhance.Brightness),
    "color": enhanced(ImageEnhance.Color),
    "contrast": enhanced(ImageEnhance.Contrast),
    "equalize": lambda picture, _: ImageOps.equalize(picture),
    "invert": lambda picture, _: ImageOps.invert(picture),
    "move_x": lambda picture, s: moved(picture, 1, 0, -int(SHARE * 32 * s), 0, 1, 0),
    "move_y": lambda picture, s: moved(picture, 1, 0, 0, 0, 1, -int(SHARE * 32 * s)),
    "posterize": lambda picture, s: ImageOps.posterize(picture, 8 - round(4 * abs(s))),
    "rotate": lambda picture, s: picture.rotate(DEGREES * s),
    "sharpness": enhanced(ImageEnhance.Sharpness),
    "shear_y": lambda picture, s: moved(picture, 1, 0, 0, SLOPE * s, 1, 0),
    "solarize": lambda picture, s: ImageOps.solarize(picture, 255 * (1 - abs(s))),
}
# Whose strength has a sign.
SIGNED = {"brightness", "color", "contrast", "move_x", "move_y", "rotate", "sharpness", "shear_y"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_pillow(name):
    x = smooth_images()
    # No place falls between two pixels by these.
    strength = torch.tensor([0.97 * (k % 10) / STRONGEST for k in range(len(x))])
    if name in SIGNED:
        strength[1::2] *= -1
    found = OPERATIONS[name](x, strength)
    for row in range(len(x)):
        picture = Image.fromarray((x[row] * 255).round().byte().permute(1, 2, 0).numpy())
        wanted = np.asarray(BY_PILLOW[name](picture, float(strength[row]))).astype(float)
        error = np.abs(wanted - 255 * found[row].permute(1, 2, 0).numpy())
        # Levels may be cut on the other side of a whole number.
        assert (error > 1.01).mean() < 0.01, (row, float(strength[row]), error.max())


def test_each_image_gets_its_pair_and_the_others_stay():
    x = smooth_images(600)
    found = auto_augment(x, 1.0, Draws(0, 600, slice(0, 600), CPU))
    changed = (found != x).flatten(1).any(1).float().mean()
    assert 0.6 < changed < 1
    assert found.min() >= 0 and found.max() <= 1
    half = auto_augment(x, 0.5, Draws(0, 600, slice(0, 600), CPU))
    is_kept = (half == x).flatten(1).all(1)
    is_same = (half == found).flatten(1).all(1)
    assert bool((is_kept | is_same).all()) and 0.3 < is_kept.float().mean() < 0.7
    assert len(POLICY) == 25


def test_a_part_of_the_batch_is_augmented_as_in_the_whole():
    x, part = smooth_images(64), slice(32, 64)
    whole = auto_augment(x, 1.0, Draws(3, 64, slice(0, 64), CPU))
    mine = auto_augment(x[part], 1.0, Draws(3, 64, part, CPU))
    assert torch.equal(whole[part], mine)


def test_other_images_than_coloured_ones_are_refused():
    with pytest.raises(ValueError, match="3 channels, got 1"):
        auto_augment(torch.zeros(4, 1, 8, 8), 1.0, Draws(0, 4, slice(0, 4), CPU))


def test_images_are_shifted_and_rotated_within_bounds():
    x = torch.zeros(400, 1, 21, 21)
    x[:, :, 10, 10] = 1.0
    found = shift(x, 0.2, Draws(0, 400, slice(0, 400), CPU))
    assert torch.equal(found.flatten(1).sum(1), torch.ones(400))
    away = (found[:, 0] == 1).nonzero()[:, 1:] - 10
    assert away.abs().max() == 4 and away.min() == -4
    # A bright place to the right of the middle stays as far from it, and within twenty degrees.
    x = torch.zeros(400, 1, 41, 41)
    x[:, :, 18:23, 33:38] = 1.0
    found = rotate(x, 20.0, Draws(0, 400, slice(0, 400), CPU))
    weight = found[:, 0] / found[:, 0].sum((1, 2), keepdim=True)
    right = (weight.sum(1) * torch.arange(-20.0, 21.0)).sum(1)
    down = (weight.sum(2) * torch.arange(-20.0, 21.0)).sum(1)
    angle = torch.atan2(down, right) * 180 / torch.pi
    torch.testing.assert_close(torch.hypot(right, down), torch.full((400,), 15.0), atol=0.1, rtol=0)
    assert 19 < angle.max() <= 20.2 and -20.2 <= angle.min() < -19
