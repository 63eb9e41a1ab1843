"""What a page that is shown to others must not say: places on a machine, hosts and people.

Provenance is copied by an allow-list, so a field that somebody adds is not shown. Free text (the
command, strings of the config) is cleaned: of an absolute path the last part stays, of an address
nothing. Names of people and hosts that the run's own files give away are removed elsewhere too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from emi.report.load import dotted

HIDDEN = "…"
# Stays as it is in the page: these are fixed words of ours, a number or a version.
_START_FIELDS = ("time", "iteration", "command", "commit", "modified")
_MACHINE_FIELDS = ("cpu", "cores", "platform")

_PRIVATE_KEY = re.compile(
    r"user|host|login|mail|home|address|token|secret|passw|credential|(^|_)(node|cwd|ip|pwd)($|_)",
    re.IGNORECASE,
)
_PRIVATE_OPTION = re.compile(r"(--?(?:address|user|host|login|node)[\w-]*)([= ]+)(\S+)", re.I)
_HOME = re.compile(r"(?:[/\\](?:home|Users)[/\\]|~)([\w.-]+)")
_MAIL = re.compile(r"([\w.+-]+)@([\w.-]+)")
# Each with what takes its place; the order matters: an address contains what looks like a path.
_PLACES: tuple[tuple[re.Pattern[str], str], ...] = (
    (_PRIVATE_OPTION, rf"\1\2{HIDDEN}"),
    (re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s'\",;]*", re.IGNORECASE), rf"\1:{HIDDEN}"),
    (re.compile(r"[\w.+-]+@[\w.-]+(:\S*)?"), HIDDEN),
    # \\server\share\name and C:\Users\name, then /home/me/name, ~/name and ../name.
    (re.compile(r"(?:\b[A-Za-z]:|\\)[\\/](?:[^\s\\/'\"]*[\\/])*([^\s\\/'\"]*)"), r"\1"),
    (re.compile(r"(?<![\w.…])(?:~[\w.-]*|\.\.)?/(?:[^\s/'\",;]*/)*([^\s/'\",;]*)"), r"\1"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), HIDDEN),  # 10.0.0.7:6379
    (re.compile(r"\b(?:[a-z0-9-]+\.){2,}[a-z]{2,}(?::\d+)?\b", re.IGNORECASE), HIDDEN),
    (re.compile(r"\b[a-z][\w.-]*:\d{2,5}\b", re.IGNORECASE), HIDDEN),  # host:6379
)


def private_words(*contents: Any) -> frozenset[str]:
    """Names of people and hosts that these JSON contents give away."""
    words: set[str] = set()
    for content in contents:
        for key, text in _strings(content, ""):
            if _PRIVATE_KEY.search(key):
                words.update(re.findall(r"[\w.-]+", text))
            words.update(match[1] for match in _HOME.finditer(text))
            words.update(word for match in _MAIL.finditer(text) for word in match.groups())
            # An address of a machine, also where it stands after an option.
            words.update(match[3] for match in _PRIVATE_OPTION.finditer(text))
    return frozenset(word for word in words if len(word) > 1)


def clean(text: str, private: frozenset[str] = frozenset()) -> str:
    """`text` without places, addresses and these words.

    >>> clean("emi train Ant --out=/home/me/runs/ant --set trpo.max_kl=0.02")
    'emi train Ant --out=ant --set trpo.max_kl=0.02'
    """
    for pattern, instead in _PLACES:
        text = pattern.sub(instead, text)
    if private:
        # The longest first: one name can be the beginning of another.
        names = "|".join(map(re.escape, sorted(private, key=lambda word: (-len(word), word))))
        text = re.sub(rf"(?<![\w])(?:{names})(?![\w])", HIDDEN, text)
    return text


def public_starts(
    provenance: Mapping[str, Any], private: frozenset[str] = frozenset()
) -> list[dict[str, str]]:
    """The starts of a run, each flat: time, iteration, command, commit, versions and machine."""
    starts = []
    for start in provenance.get("starts", []):
        shown = {key: start[key] for key in _START_FIELDS if start.get(key) is not None}
        versions, machine = start.get("versions") or {}, start.get("machine") or {}
        shown |= {f"version of {name}": versions[name] for name in versions if versions[name]}
        shown |= {key: machine[key] for key in _MACHINE_FIELDS if machine.get(key) is not None}
        starts.append({key: _public(key, value, private) for key, value in shown.items()})
    return starts


def _public(key: str, value: Any, private: frozenset[str]) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    # A time has colons like an address; it is known by its form instead.
    if key == "time" and re.fullmatch(r"[\dT:+.Z-]+", str(value)):
        return str(value)
    return clean(str(value), private)


def public_config(
    config: Mapping[str, Any], private: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The config with dotted keys, its strings cleaned, without keys that name people or hosts."""
    flat: dict[str, Any] = {}
    for key, value in dotted(config):
        if _PRIVATE_KEY.search(key):
            continue
        # Our own words: a person called emi must not hide the method.
        flat[key] = _cleaned(value, frozenset() if key in ("env", "method") else private)
    return flat


def _cleaned(value: Any, private: frozenset[str]) -> Any:
    if isinstance(value, str):
        return clean(value, private)
    return [_cleaned(part, private) for part in value] if isinstance(value, list) else value


def _strings(content: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every string inside, with the name it has."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _strings(value, str(name))
    elif isinstance(content, list):
        for value in content:
            yield from _strings(value, key)
    elif isinstance(content, str):
        yield key, content
