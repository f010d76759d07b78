"""Notices when a program waits for the device."""

from torch.utils._python_dispatch import TorchDispatchMode


class NoWaiting(TorchDispatchMode):
    """Raises when the value of a tensor is read: .item(), float(), bool(), a mask as index."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name = function.overloadpacket.__name__
        if name in ("_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select"):
            raise AssertionError(f"{function} waits for the device")
        return function(*arguments, **(options or {}))
