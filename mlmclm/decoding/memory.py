"""Peak resident memory of a process that does nothing but load a model and generate.

Only a process of its own shows it: the high-water mark of one that has trained before is that of
training. On a CPU it contains Python and the libraries, as it does for whoever serves the model,
and at these sizes little else, so the mark before generating is given too. On a CUDA device it is
what torch allocated there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin, DynamicCache

from mlmclm.attention import Visibility
from mlmclm.contracts import Vocabulary
from mlmclm.decoding.base import Decoder
from mlmclm.decoding.left_to_right import LeftToRightDecoder, hidden_after
from mlmclm.decoding.mask_predict import MaskPredictDecoder
from mlmclm.models.presets import load_network
from mlmclm.models.token_model import TokenModel

DECODERS: dict[str, type[Decoder]] = {
    each.__name__: each for each in (LeftToRightDecoder, MaskPredictDecoder)
}

LAUNCHER = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-m', sys.argv[1]]))"
"""Stands between: on Linux a process starts with the mark of the one that started it (seen: 1 GiB
too much), since exec keeps the old image's ``ru_maxrss``. This one is small."""


@dataclass(frozen=True)
class Peak:
    """High-water marks of one process, in bytes."""

    before: int
    """With the model loaded, before anything was generated."""
    after: int
    """Of everything, generation included."""
    kv_cache: int
    """Keys and values at the last pass, measured; 0 without a cache. Part of ``after``."""


def peak_bytes(device: torch.device) -> int:
    """Return this process's high-water mark: on CUDA of the device, else of resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource  # noqa: PLC0415 - exists on Unix only

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cache_bytes(config: PreTrainedConfig, positions: int, number: int) -> int:
    """Return the size of a cache by formula, batch 1.

    Keys and values, for each layer, key-value head, dimension of a head and position.

    Args:
        config: of the network.
        positions: how many are kept.
        number: bytes of one number.
    """
    heads = config.num_attention_heads
    kept_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * kept_heads * width * positions * number)


@torch.inference_mode()
def measured_cache_bytes(model: TokenModel, ids: Tensor) -> int:
    """Return the size of the cache that holds (batch, time) ids."""
    memory = DynamicCache(config=model.network.config)
    hidden_after(model, memory, ids)
    layers = [each for each in memory.layers if isinstance(each, CacheLayerMixin)]
    kept = [tensor for layer in layers for tensor in (layer.keys, layer.values)]
    return sum(tensor.nbytes for tensor in kept if tensor is not None)


def peak_of(model: TokenModel, decoder: Decoder, prompt: list[int], new_tokens: int) -> Peak:
    """Return the peaks of a fresh process that loads the model and generates once, batch 1.

    Raises:
        RuntimeError: if that process fails, with what it said.
    """
    with TemporaryDirectory() as folder:
        model.network.save_pretrained(folder)
        order = {
            "folder": folder,
            "kernel": model.network.config._attn_implementation,
            "device": str(model.device),
            "threads": torch.get_num_threads(),
            "visibility": model.visibility.value,
            "vocabulary": vars(model.vocabulary),
            "decoder": type(decoder).__name__,
            "options": vars(decoder),
            "prompt": prompt,
            "new_tokens": new_tokens,
        }
        done = subprocess.run(
            [sys.executable, "-c", LAUNCHER, __name__],
            input=json.dumps(order),
            capture_output=True,
            check=False,
            encoding="utf-8",
        )
    if done.returncode != 0:
        raise RuntimeError(f"the process that measures memory failed:\n{done.stderr}")
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Read an order from stdin, carry it out, and write the peaks to stdout as JSON."""
    order = json.load(sys.stdin)
    torch.set_num_threads(order["threads"])
    device = torch.device(order["device"])
    visibility = Visibility(order["visibility"])
    network, native = load_network(Path(order["folder"]), order["kernel"], visibility)
    model = TokenModel(network, visibility, native, Vocabulary(**order["vocabulary"]))
    model.to(device).eval()
    decoder = DECODERS[order["decoder"]](**order["options"])
    before = peak_bytes(device)
    text = decoder.generate(model, torch.tensor([order["prompt"]]), order["new_tokens"])
    after = peak_bytes(device)
    kept = measured_cache_bytes(model, text[:, :-1]) if decoder.cached(model) else 0
    sys.stdout.write(f"{json.dumps(asdict(Peak(before, after, kept)))}\n")


if __name__ == "__main__":
    main()
