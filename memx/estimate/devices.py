"""The memory of GPUs by name."""

from __future__ import annotations

import re

from ..errors import InvalidValueError
from ..sizes import parse_size

__all__ = ["DEVICES", "device_bytes"]

_MIB = 1 << 20

#: MiB as the driver reports them. A process's context, its kernels and other programs take some of it.
DEVICES = {
    "t4-16gb": 15360,
    "v100-16gb": 16384,
    "v100-32gb": 32768,
    "a10-24gb": 23028,
    "a30-24gb": 24576,
    "a40-48gb": 46068,
    "a100-40gb": 40960,
    "a100-80gb": 81920,
    "l4-24gb": 23034,
    "l40-48gb": 46068,
    "l40s-48gb": 46068,
    "h100-80gb": 81559,
    "h100-nvl-94gb": 95830,
    "gh200-96gb": 97871,
    "h200-141gb": 143771,
    "b200-180gb": 183359,
    "rtx2080ti-11gb": 11264,
    "rtx3060-12gb": 12288,
    "rtx3070-8gb": 8192,
    "rtx3080-10gb": 10240,
    "rtx3090-24gb": 24576,
    "rtx4060ti-16gb": 16380,
    "rtx4070-12gb": 12282,
    "rtx4080-16gb": 16376,
    "rtx4090-24gb": 24564,
    "rtx5080-16gb": 16303,
    "rtx5090-32gb": 32607,
    "rtxa4000-16gb": 16376,
    "rtxa6000-48gb": 49140,
    "rtx6000ada-48gb": 49140,
    "rtxpro6000-96gb": 97887,
}


def device_bytes(text: str) -> int:
    """The memory of a device given by name or by size.

    Parameters
    ----------
    text : str
        ``"h100-80gb"``, or without the size where only one has the name; case, spaces and dashes do not count. Or a
        size, ``"24GiB"``.

    Raises
    ------
    InvalidValueError
        Neither; the message lists what there is.
    """
    try:
        nbytes = parse_size(text)
    except InvalidValueError:
        return _MIB * DEVICES[_name(text)]
    if nbytes < 1:
        raise InvalidValueError(f"a device has memory: {text!r}")
    return nbytes


def _name(text: str) -> str:
    wanted = _plain(text)
    fitting = [name for name in DEVICES if wanted in (_plain(name), _plain(name.rpartition("-")[0]))]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InvalidValueError(f"{text!r} may be {' or '.join(fitting)}")
    raise InvalidValueError(f"no size and no device: {text!r} (a size such as 24GiB, or one of {', '.join(DEVICES)})")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]|nvidia|geforce", "", name.lower())
