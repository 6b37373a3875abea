"""Peak resident memory of a process that does nothing but load a model and generate.

Only a process of its own shows it: the high-water mark of one that has trained before is that of
training. It contains Python and the libraries, as it does for whoever serves the model.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from mlmclm.attention import Visibility
from mlmclm.contracts import Vocabulary
from mlmclm.evaluation.generation.decoding import Decoder
from mlmclm.evaluation.generation.left_to_right import LeftToRightDecoder
from mlmclm.evaluation.generation.mask_predict import MaskPredictDecoder
from mlmclm.models.token_model import TokenModel

DECODERS: dict[str, type[Decoder]] = {
    each.__name__: each for each in (LeftToRightDecoder, MaskPredictDecoder)
}


def peak_bytes() -> int:
    """Return the high-water mark of this process's resident memory."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource  # noqa: PLC0415 - exists on Unix only

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_of(model: TokenModel, decoder: Decoder, prompt: list[int], new_tokens: int) -> int:
    """Return the peak resident bytes of a fresh process that generates once, batch 1."""
    with TemporaryDirectory() as folder:
        model.network.save_pretrained(folder)
        order = {
            "folder": folder,
            "kernel": model.network.config._attn_implementation,
            "visibility": model.visibility.value,
            "vocabulary": vars(model.vocabulary),
            "decoder": type(decoder).__name__,
            "options": vars(decoder),
            "prompt": prompt,
            "new_tokens": new_tokens,
        }
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            check=True,
            encoding="utf-8",
        )
    return int(done.stdout.split()[-1])


def main() -> None:
    """Read an order from stdin, carry it out, and write the peak in bytes to stdout."""
    import torch  # noqa: PLC0415 - after the process has begun, as it would be in use

    from mlmclm.models.presets import load_network  # noqa: PLC0415

    order = json.load(sys.stdin)
    visibility = Visibility(order["visibility"])
    network, native = load_network(Path(order["folder"]), order["kernel"], visibility)
    model = TokenModel(network, visibility, native, Vocabulary(**order["vocabulary"])).eval()
    decoder = DECODERS[order["decoder"]](**order["options"])
    decoder.generate(model, torch.tensor([order["prompt"]]), order["new_tokens"])
    sys.stdout.write(f"{peak_bytes()}\n")


if __name__ == "__main__":
    main()
