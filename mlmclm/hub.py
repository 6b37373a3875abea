"""The Hugging Face hub, asked once whether it is there before anything is fetched from it.

Left alone, huggingface_hub 2.4 tries each file five times with growing pauses: without a network
23 s for a data set and 46 s for a tokenizer (measured), with a line on stderr for each try.
"""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from urllib.error import HTTPError, URLError

PATIENCE_SECONDS = 10.0
"""For the one question; the timeout that huggingface_hub has for a file's head."""


def silence() -> str | None:
    """Return why the hub does not answer, or None where it does.

    A refusal, or a certificate that only the real client knows, is an answer too. Proxies are taken
    from the environment, as the real client does.
    """
    from huggingface_hub import constants  # noqa: PLC0415 - slow, and for hub names only

    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    question = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        with urllib.request.urlopen(question, timeout=PATIENCE_SECONDS):
            return None
    except (HTTPError, HTTPException):
        return None
    except OSError as error:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, ssl.SSLError):
            return None
        return f"{constants.ENDPOINT} cannot be reached: {cause}"


@contextmanager
def asked_once() -> Iterator[str | None]:
    """Yield why the hub does not answer, or None; where it does not, only its cache is read inside.

    So what was fetched before can be used without a network, and what was not fails at once.
    """
    from huggingface_hub import constants  # noqa: PLC0415

    reason = silence()
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or reason is not None
    try:
        yield reason
    finally:
        constants.HF_HUB_OFFLINE = before
