"""Remove absolute paths, hosts and people's names from what a report shows.

Provenance is copied by an allow-list, so unknown fields are not shown. Free text (the command,
strings of the config) is cleaned: an absolute path keeps its last part, an address is removed.
Names of people and hosts found anywhere in a run's files are removed everywhere.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

HIDDEN = "…"
# The allow-list: fixed strings of emi, numbers and versions.
_START_FIELDS = ("time", "iteration", "command", "commit", "modified")
_MACHINE_FIELDS = ("cpu", "cores", "platform")

_PRIVATE_KEY = re.compile(
    r"user|host|login|mail|home|address|token|secret|passw|credential|(^|_)(node|cwd|ip|pwd)($|_)",
    re.IGNORECASE,
)
_PRIVATE_OPTION = re.compile(r"(--?(?:address|user|host|login|node)[\w-]{0,40})([= ]+)(\S+)", re.I)
_HOME = re.compile(r"(?:[/\\](?:home|Users)[/\\]|~)([\w.-]+)")
_MAIL = re.compile(r"([\w.+-]{1,64})@([\w.-]+)")
# Patterns and their replacements. The order matters: an address contains what looks like a path.
# Repetitions are bounded, because the time for a long text would grow with its square otherwise.
_PLACES: tuple[tuple[re.Pattern[str], str], ...] = (
    (_PRIVATE_OPTION, rf"\1\2{HIDDEN}"),
    (re.compile(r"\b([a-z][a-z0-9+.-]{0,30})://[^\s'\",;]*", re.IGNORECASE), rf"\1:{HIDDEN}"),
    (re.compile(r"[\w.+-]{1,64}@[\w.-]+(:\S*)?"), HIDDEN),
    # \\server\share\name and C:\Users\name, then /home/me/name, ~/name and ../name.
    (re.compile(r"(?:\b[A-Za-z]:|\\)[\\/](?:[^\s\\/'\"]*[\\/])*([^\s\\/'\"]*)"), r"\1"),
    (re.compile(r"(?<![\w.…])(?:~[\w.-]*|\.\.)?/(?:[^\s/'\",;]*/)*([^\s/'\",;]*)"), r"\1"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), HIDDEN),  # 10.0.0.7:6379
    (re.compile(r"\b(?:[a-z0-9-]{1,63}\.){2,20}[a-z]{2,}(?::\d+)?\b", re.IGNORECASE), HIDDEN),
    (re.compile(r"\b[a-z][\w.-]{0,255}:\d{2,5}\b", re.IGNORECASE), HIDDEN),  # host:6379
)


def private_words(*contents: Any) -> frozenset[str]:
    """Names of people and hosts in these JSON contents."""
    words: set[str] = set()
    for content in contents:
        for key, text in _strings(content, ""):
            if _PRIVATE_KEY.search(key):
                words.update(re.findall(r"[\w.-]+", text))
            words.update(match[1] for match in _HOME.finditer(text))
            words.update(word for match in _MAIL.finditer(text) for word in match.groups())
            # Addresses of machines after an option.
            words.update(match[3] for match in _PRIVATE_OPTION.finditer(text))
    return frozenset(word for word in words if len(word) > 1)


def clean(text: str, private: frozenset[str] = frozenset()) -> str:
    """`text` without absolute paths, addresses and these words.

    >>> clean("emi train Ant --out=/home/me/runs/ant --set trpo.max_kl=0.02")
    'emi train Ant --out=ant --set trpo.max_kl=0.02'
    """
    for pattern, instead in _PLACES:
        text = pattern.sub(instead, text)
    if private:
        # The longest first: one name can be a prefix of another.
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
    # A time contains colons as an address does, and is recognised by its format.
    if key == "time" and re.fullmatch(r"[\dT:+.Z-]+", str(value)):
        return str(value)
    return clean(str(value), private)


def public_config(
    flat_config: Mapping[str, Any], private: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """A config with dotted keys, its strings cleaned, without keys that name people or hosts."""
    return {
        # A user called emi must not hide the name of the method.
        key: _cleaned(value, frozenset() if key in ("env", "method") else private)
        for key, value in flat_config.items()
        if not _PRIVATE_KEY.search(key)
    }


def _cleaned(value: Any, private: frozenset[str]) -> Any:
    if isinstance(value, str):
        return clean(value, private)
    return [_cleaned(part, private) for part in value] if isinstance(value, list) else value


def _strings(content: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every string in `content` with its key."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _strings(value, str(name))
    elif isinstance(content, list):
        for value in content:
            yield from _strings(value, key)
    elif isinstance(content, str):
        yield key, content
