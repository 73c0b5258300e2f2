"""The page at ``/``: one file without parts elsewhere, which its policy enforces."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path

from starlette.responses import HTMLResponse

_FILE = Path(__file__).with_name("page.html")


def page() -> HTMLResponse:
    """Makes the page, which runs its own script, has its own style, and speaks to its own server only."""
    text, policy = _read()
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return HTMLResponse(text, headers=headers)


@functools.cache
def _read() -> tuple[str, str]:
    """The page, and its content security policy."""
    text = _FILE.read_text(encoding="utf-8")
    return text, (
        f"default-src 'none'; script-src {_source(text, 'script')}; style-src {_source(text, 'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    )


def _source(text: str, tag: str) -> str:
    """The hash by which a policy allows the content of the only element of a kind."""
    _, content, _ = re.split(f"</?{tag}>", text)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
