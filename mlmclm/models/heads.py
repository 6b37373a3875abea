"""From hidden states to losses without ever holding all logits.

A head is a transform (identity for most) and one linear layer onto the vocabulary. Keeping the two
apart lets the loss be taken only where there is a target, and in chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from mlmclm.errors import UserError

Transform = Callable[[Tensor], Tensor]
CHUNK = 256
"""Positions whose logits exist at the same time; in reused memory the fastest on CPU."""


def _roberta_transform(head: nn.Module) -> Transform:
    def transform(hidden: Tensor) -> Tensor:
        return head.layer_norm(nn.functional.gelu(head.dense(hidden)))  # type: ignore[no-any-return, operator]

    return transform


def head_transform(network: PreTrainedModel) -> Transform:
    """Return what the network does to hidden states before its output layer.

    Raises:
        UserError: if the architecture's head is of no known shape.
    """
    head = getattr(network, "cls", None)
    if head is not None:
        return cast("Transform", head.predictions.transform)
    if isinstance(getattr(network, "lm_head", None), nn.Linear):
        return nn.Identity()
    if hasattr(network, "lm_head") and hasattr(network.lm_head, "layer_norm"):
        return _roberta_transform(network.lm_head)
    if hasattr(network, "head") and hasattr(network, "decoder"):
        return cast("Transform", network.head)
    raise UserError(
        f"the language-model head of {type(network).__name__} is not known; "
        "known are those of BERT, RoBERTa, ModernBERT, EuroBERT, LLaMA and GPT-2"
    )


class LinearCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of ``softmax(hidden @ weight.T + bias)``, gradients made on the way.

    The gradient of a softmax cross-entropy with respect to its logits is ``p - onehot``, so each
    chunk of logits is turned into gradients at once and forgotten: memory is that of one chunk.
    Softmax is in float32 whatever the inputs are. Measured on 2 CPU cores (4,096 positions, 8,192
    tokens, width 128, bfloat16): 2 to 3 times as fast as torch's own ``linear_cross_entropy``, with
    or without its chunking.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
    ) -> Tensor:
        """Return the summed nats (float32 scalar).

        Args:
            ctx: autograd context.
            hidden: (positions, width).
            weight: (vocabulary, width).
            bias: (vocabulary,) or None.
            targets: (positions,), all of them real token ids.
        """
        hidden_grad = torch.empty_like(hidden)
        weight_grad = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        bias_grad = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        nats = torch.zeros((), dtype=torch.float64, device=hidden.device)
        size = min(CHUNK, len(hidden)), len(weight)
        logits_space = hidden.new_empty(size)
        share_space = hidden.new_empty(size, dtype=torch.float32)
        for start in range(0, len(hidden), CHUNK):
            part = hidden[start : start + CHUNK]
            answers = targets[start : start + CHUNK, None]
            logits = torch.mm(part, weight.T, out=logits_space[: len(part)])
            if bias is not None:
                logits += bias
            share = share_space[: len(part)]
            torch.softmax(logits, -1, dtype=torch.float32, out=share)
            nats += _nats_of(share, logits, answers)
            share.scatter_add_(1, answers, torch.full_like(answers, -1, dtype=share.dtype))
            if bias_grad is not None:
                bias_grad += share.sum(0)
            rounded = logits.copy_(share)
            torch.mm(rounded, weight, out=hidden_grad[start : start + CHUNK])
            weight_grad += rounded.T @ part
        ctx.save_for_backward(hidden_grad, weight_grad, bias_grad)
        return nats.float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the stored gradients."""
        (scale,) = grads
        hidden_grad, weight_grad, bias_grad = ctx.saved_tensors
        return (
            hidden_grad * scale.to(hidden_grad.dtype),
            weight_grad * scale,
            None if bias_grad is None else bias_grad * scale,
            None,
        )


def _nats_of(share: Tensor, logits: Tensor, answers: Tensor) -> Tensor:
    chosen = share.gather(1, answers)
    if bool((chosen < torch.finfo(torch.float32).tiny).any()):
        return -torch.log_softmax(logits, -1, dtype=torch.float32).gather(1, answers).double().sum()
    return -chosen.log().double().sum()


def _summed_nats(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Do what `LinearCrossEntropy` does where nobody asks for gradients."""
    nats = torch.zeros((), dtype=torch.float64, device=hidden.device)
    for start in range(0, len(hidden), CHUNK):
        logits = nn.functional.linear(hidden[start : start + CHUNK], weight, bias)
        answers = targets[start : start + CHUNK]
        nats += nn.functional.cross_entropy(logits.float(), answers, reduction="sum").double()
    return nats.float()


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
) -> Tensor:
    """Return the summed cross-entropy in nats, in the precision that autocast asks for.

    Args:
        hidden: (positions, width).
        weight: (vocabulary, width).
        bias: (vocabulary,) or None.
        targets: (positions,), none of them `IGNORED`.
    """
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if not torch.is_grad_enabled():
        return _summed_nats(hidden, weight, bias, targets)
    return LinearCrossEntropy.apply(hidden, weight, bias, targets)  # type: ignore[no-any-return]
