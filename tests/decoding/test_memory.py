import pytest
import torch

from mlmclm.decoding import memory
from mlmclm.decoding.left_to_right import LeftToRightDecoder
from mlmclm.decoding.memory import cache_bytes, measured_cache_bytes, peak_of


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_a_cache_is_as_large_as_the_formula_says(family, causal, prompt):
    model = causal(family)
    expected = cache_bytes(model.network.config, prompt.shape[1], 4)
    assert measured_cache_bytes(model, prompt[:1]) == expected > 0


def test_grouped_key_value_heads_keep_less(causal):
    llama, gpt2 = (cache_bytes(causal(each).network.config, 10, 4) for each in ("llama", "gpt2"))
    assert gpt2 == 2 * 2 * 32 * 10 * 4
    assert llama == gpt2 // 2  # 2 of 4 heads


@pytest.mark.slow
def test_the_peak_is_that_of_a_process_of_its_own(causal, prompt):
    model = causal()
    ballast = torch.ones(2**29)  # 2 GiB here, which the other process knows nothing of
    found = peak_of(model, LeftToRightDecoder(), prompt[0].tolist(), 20)
    assert found.kv_cache == cache_bytes(model.network.config, 7 + 20 - 1, 4)
    assert 2**26 < found.before <= found.after < ballast.nbytes


def test_a_failure_in_that_process_is_told(causal, monkeypatch):
    monkeypatch.setattr(memory, "LAUNCHER", "import sys; sys.exit('no space left')")
    with pytest.raises(RuntimeError, match="no space left"):
        peak_of(causal(), LeftToRightDecoder(), [5, 6], 1)
