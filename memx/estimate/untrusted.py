"""Which of an estimate's parts cannot be trusted, from the kernels that ran and from what went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .raw import Raw

__all__ = ["untrusted"]

#: Part of a kernel's name, what it stands for, and why memory may differ on a GPU.
_KERNELS = (
    (
        r"DeviceSelectSweepKernel",
        "nonzero, masked_select, unique or indexing with a mask",
        "how much they return depends on data, and is nothing here: what follows is too small",
    ),
    (
        r"kernelHistogram1D",
        "bincount or histc",
        "how much bincount returns depends on data, and is the least here",
    ),
    (
        r"im2col|col2im|vol2col|col2vol|conv_depthwise|slow_conv|conv_transpose",
        "convolutions",
        "cuDNN is off here, and its workspaces and choices of algorithm are not seen: PyTorch's own code takes a "
        "buffer for one image's unfolded input instead",
    ),
    (
        r"lstm_cell|gru_cell",
        "recurrent layers",
        "cuDNN is off here: PyTorch's own code keeps other and more activations than cuDNN's reserve",
    ),
    (r"ctc_loss", "ctc_loss", "cuDNN is off here; PyTorch's own code has other buffers"),
)

#: Whose kernels are known to allocate only through PyTorch.
_KNOWN = re.compile(
    r"^cublas|^memx|at6native|at_cuda_detail|2at4cuda|at3cuda|3cub|6thrust|pytorch_flash|PyTorchMemEffAttention|"
    r"fmha_|7cutlass|cutlass|_GLOBAL__N_|5caffe2|3c10|c10_|gemm|gemv|ncclDevKernel|^triton_|2at|fbgemm|vllm"
)

_ENDS = "it is not simulated: the program ends there"
_ERRORS = (
    (
        r"cusolver",
        "cuSOLVER (linalg.svd, eigh, inv, solve, cholesky, ...)",
        _ENDS,
    ),
    (r"cufft", "cuFFT (torch.fft)", _ENDS),
    (r"cusparse", "cuSPARSE (sparse matrices)", _ENDS),
    (r"cudnn", "cuDNN", _ENDS),
    (r"nccl", "NCCL", _ENDS),
    (r"triton|libcuda\.so", "Triton", "the program's kernels could not be built or started here"),
)


def untrusted(raw: Raw) -> list[dict[str, str]]:
    """What was met that makes a GPU's memory differ: ``what``, ``why``."""
    out = [{"what": what, "why": why} for what, why in _met(raw.kernels)]
    own = sorted(name for name in raw.kernels if not _KNOWN.search(name))
    if own:
        shown = ", ".join(name[:60] for name in own[:5]) + (f" and {len(own) - 5} more" if len(own) > 5 else "")
        out.append(
            {"what": f"custom kernels: {shown}", "why": "what they write, and allocate by themselves, is not seen"}
        )
    if any(name.startswith("triton_") for name in raw.kernels):
        out.append(
            {
                "what": "torch.compile's Triton kernels",
                "why": "they compute nothing here, and which configuration auto-tuning would choose is not known",
            }
        )
    if raw.error:
        for pattern, what, why in _ERRORS:
            if re.search(pattern, raw.error, re.IGNORECASE):
                out.append({"what": what, "why": why})
                break
    out += [{"what": note.partition(":")[0], "why": note.partition(":")[2].strip()} for note in raw.notes]
    if raw.missing:
        out.append({"what": f"{raw.missing} allocations", "why": "they were too many to keep: the first are missing"})
    return out


def _met(kernels: Iterable[str]) -> Iterable[tuple[str, str]]:
    names = list(kernels)
    for pattern, what, why in _KERNELS:
        if any(re.search(pattern, name) for name in names):
            yield what, why
