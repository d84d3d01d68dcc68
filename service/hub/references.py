"""Parses what users call a repo: `owner/name`, `owner/name:VARIANT`, `hf.co/owner/name:VARIANT`, or any Hub URL.

In a longer text (a download command, Python, a settings file, a path, a sentence) only an unambiguous mention counts:
with several addresses or several `owner/name`, none is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import SplitResult, parse_qs, quote_plus, unquote, urlsplit

import msgspec

from service.engine.errors import InvalidInput

HOSTS = frozenset({"huggingface.co", "www.huggingface.co", "hf.co", "hf-mirror.com"})  # the last mirrors all of it
MAX_TEXT = 2_048
_MAX_PART = 96  # characters of an owner and of a name each
# What other programs put before a repo: `ollama run hf.co/a/b`, `llama-server -hf a/b:Q4_K_M`, `hf download a/b`.
_COMMAND = re.compile(
    r"(?:\$\s+)?(?:ollama\s+(?:run|pull)\s+|(?:hf|huggingface-cli)\s+download\s+|git\s+(?:lfs\s+)?clone\s+"
    r"|(?:(?:\S{0,80}/)?llama-(?:server|cli)\s+)?(?:-hfr?|--hf-repo)[\s=]+)",
    re.I,
)
_LINK = re.compile(r"\[[^\[\]]*\]\((\S+?)\)|<(\S+?)>")  # Markdown's links, and <addresses> without a preview in chat
QUANTISATION = r"(?:(?:UD|i1|smol|mix|pure|imat)[-_])?(?:I?Q|TQ|DQ)[1-8]_\w+|BF16|FP16|F16|F32|MXFP4\w*|NVFP4"
_INCLUDED = re.compile(rf"--include(?:=|\s+)\S*?({QUANTISATION})(?![A-Za-z0-9_])", re.I)
_OPTIONS = re.compile(r"\s+--?[A-Za-z].*|\s+\.?$", re.S)
_VARIANT_BEHIND = re.compile(rf"([^\s:]+/[^\s:/]+)(?:\s+|/)({QUANTISATION})", re.I)
_FILE_BEHIND = re.compile(r"([^\s:]+/[^\s:/]+)\s+(\S+\.gguf)", re.I)
_REVISION_BEFORE = re.compile(r"([^\s:@]+/[^\s:@/]+)@([^\s:@/]+):([^\s:/]+)")
_CACHE_FOLDER = re.compile(r"(?:\S*/)?models--([A-Za-z0-9_.-]{1,96}?)--([A-Za-z0-9_.-]{1,96})(?:/\S*)?")
_SEARCHED = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{1,95}", re.ASCII)
_SCHEME = re.compile(r"(https?|hf)://", re.I)
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}", re.ASCII)
_VARIANT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}", re.ASCII)
_ANY = "latest"  # Ollama's default tag
_PINNED = re.compile(r"([^@:]+)@(main|[0-9a-f]{7,40})", re.ASCII)
_SHA = re.compile(r"[0-9a-f]{40}", re.ASCII)
_OTHER_SECTIONS = ("datasets", "spaces", "collections", "papers", "docs", "api", "models", "organizations", "settings")
_OTHER_HUB = re.compile(r"/models/([A-Za-z0-9_.-]{1,96}/[A-Za-z0-9_.-]{1,96})(?:/.*)?", re.ASCII)
_WANTED = "give OWNER/NAME, OWNER/NAME:VARIANT, or the address of a model repo on huggingface.co"


class RepoReference(msgspec.Struct, frozen=True):
    """A repo as a user named it. `file`: the path of a file or folder in the repo that a URL pointed at."""

    owner: str
    name: str
    revision: str | None = None
    variant: str | None = None
    file: str | None = None

    @property
    def repo(self) -> str:
        """The Hub's id, `owner/name`."""
        return f"{self.owner}/{self.name}"

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, and so never changes."""
        return self.revision is not None and _SHA.fullmatch(self.revision) is not None


def parse_repo_reference(text: str) -> RepoReference:
    """Return the repo that `text` refers to. Raises InvalidInput (field `repo`) for anything but a model on the Hub."""
    if len(text) > MAX_TEXT:
        raise _invalid(f"the text is longer than {MAX_TEXT} characters")
    try:
        reference = _strict(text)
    except InvalidInput:
        mention = mention_in(text)
        if mention is None:
            raise
        reference = _strict(mention.reference)
    else:
        mention = mention_in(text) if " " in text.strip() else None
    if mention is None or reference.variant or reference.file:
        return reference
    if mention.file is not None and is_safe_path(mention.file):
        return msgspec.structs.replace(reference, file=mention.file)
    return msgspec.structs.replace(reference, variant=mention.variant)


def _strict(text: str) -> RepoReference:
    text = _SCHEME.sub(lambda m: m[0].lower(), _without_wrapping(text), count=1)
    if is_name_alone(text):
        searched = quote_plus(text.replace(":", " "))
        raise _invalid(f"{text!r} names no owner; huggingface.co/models?library=gguf&search={searched} has the repos")
    if not text.isprintable() or " " in text:
        raise _invalid("the text has spaces or control characters")
    if text.startswith("hf://"):
        return _from_library(text.removeprefix("hf://").removeprefix("models/"))
    scheme, separator, _ = text.partition("://")
    if separator and scheme not in ("http", "https"):
        raise _invalid(f"{scheme[:20]!r} is not an address of the Hub")
    host = text.split("/", 1)[0].lower()
    if separator or host in HOSTS:
        return _from_url(text if separator else f"https://{text}")
    # `OWNER/NAME`, optionally followed by a slash or by the path of a GGUF file of the repo.
    owner, slash, rest = text.removesuffix("/").partition("/")
    name, deeper, path = rest.partition("/")
    if not deeper or not path.lower().endswith(".gguf"):
        return _plain(f"{owner}{slash}{rest}", None)
    return msgspec.structs.replace(_plain(f"{owner}/{name}", None), file=_path(path))


def is_name_alone(text: str) -> bool:
    """Return whether a text may be the name of a repo without its owner, such as `qwen3 235b`."""
    return text.isprintable() and "/" not in text and _SEARCHED.fullmatch(text.strip().replace(":", " ")) is not None


def _without_wrapping(text: str) -> str:
    """Return the part that names the repo in a link, a command, a path of the Hub's cache, or next to a variant."""
    text = text.strip()
    if link := _LINK.fullmatch(text):
        text = link[1] or link[2]
    if command := _COMMAND.match(text):
        included = _INCLUDED.search(text)
        text = _OPTIONS.sub("", text[command.end() :], count=1).strip("`'\" ")
        text = text.removesuffix(".git") if command[0].lstrip("$ ").startswith("git") else text
        text += f":{included[1]}" if included and ":" not in text else ""
    text = text.strip("`'\" ")
    if folder := _CACHE_FOLDER.fullmatch(text):
        text = f"{folder[1]}/{folder[2]}"
    if revision := _REVISION_BEFORE.fullmatch(text):
        text = f"hf.co/{revision[1]}:{revision[3]}/tree/{revision[2]}"
    if file := _FILE_BEHIND.fullmatch(text):
        text = f"{file[1]}/{file[2]}"
    behind = _VARIANT_BEHIND.fullmatch(text)
    return f"{behind[1]}:{behind[2]}" if behind else text


def parse_reference(repo: str, revision: str | None) -> RepoReference:
    """Return the reference in `repo` at `revision`. Raises InvalidInput when they name two different revisions."""
    reference = parse_repo_reference(repo)
    if revision is not None:
        checked_revision(revision)
    if revision is None or revision == reference.revision:
        return reference
    if reference.revision is not None:
        raise InvalidInput(
            f"`repo` names the revision {reference.revision}, `revision` another: leave one of them out",
            field="revision",
        )
    return msgspec.structs.replace(reference, revision=revision)


def checked_revision(revision: str) -> str:
    """Return `revision` if it is a possible branch, tag or commit. Raises InvalidInput."""
    if not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision or revision.endswith("/"):
        raise InvalidInput(f"{revision[:80]!r} is not a name of a branch, tag or commit", field="revision")
    return revision


def checked_repo(text: str) -> tuple[str, str]:
    """Return owner and name of `OWNER/NAME`. Raises InvalidInput (field `repo`) for an id that the Hub forbids."""
    owner, _, name = text.partition("/")
    for part in (owner, name):
        if not _PART.fullmatch(part) or ".." in part or "--" in part or part.endswith(".git"):
            raise _invalid(f"{text[:120]!r} is not a repo id")
        if len(part) > _MAX_PART:
            raise _invalid(f"the owner and the name of a repo have at most {_MAX_PART} characters each")
    return owner, name


def _invalid(what: str) -> InvalidInput:
    return InvalidInput(f"{what}: {_WANTED}", field="repo")


def _from_library(text: str) -> RepoReference:
    """Parse `hf://OWNER/NAME@REVISION/PATH`, the form of huggingface_hub's file system."""
    owner, _, rest = text.partition("/")
    name, _, path = rest.partition("/")
    name, at, revision = name.partition("@")
    repo = _plain(f"{owner}/{name}", checked_revision(unquote(revision)) if at else None)
    return msgspec.structs.replace(repo, file=_path(path)) if path else repo


def _plain(text: str, revision: str | None) -> RepoReference:
    if revision is None and (pinned := _PINNED.fullmatch(text)):
        text, revision = pinned[1], pinned[2]
    repo, colon, variant = re.sub(r"@(?=[^/:@]+$)", ":", text, count=1).partition(":")  # LM Studio: `a/b@q4_k_m`
    owner, name = checked_repo(repo)
    asked = colon and variant.lower() != _ANY
    return RepoReference(owner, name, revision, _variant(variant) if asked else None)


def _variant(text: str) -> str:
    if not _VARIANT.fullmatch(text):
        raise _invalid(f"{text[:80]!r} is not a name of a variant")
    return text


def _from_url(url: str) -> RepoReference:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _invalid("the address cannot be read") from error
    if host not in HOSTS or port is not None or "@" in parts.netloc:
        there = _OTHER_HUB.fullmatch(parts.path)
        same = f" (which may have {there[1]} too)" if there else ""
        raise _invalid(f"{parts.netloc[:80]!r} is not the Hub{same}")
    segments = [unquote(s) for s in parts.path.split("/") if s]
    if not segments or segments[0] in _OTHER_SECTIONS:
        raise _invalid("the address is not of a model repo")
    if len(segments) == 1:
        raise _invalid("the address ends before the repo's name")
    repo = _plain("/".join(segments[:2]), None)
    return _with_place(repo, segments[2:], parts)


def _with_place(repo: RepoReference, place: list[str], parts: SplitResult) -> RepoReference:
    shown = _file_shown(parts.query)
    if not place:
        return msgspec.structs.replace(repo, file=_path(shown) if shown else None)
    if place[0] not in ("blob", "resolve", "tree", "raw") or len(place) < 2:
        if place[0] in ("discussions", "commits", "blame", "edit"):
            return repo
        raise _invalid(f"{place[0][:40]!r} is not a page of a repo's files")
    length = 3 if place[1] == "refs" else 1  # refs/pr/7 and refs/convert/x are written with slashes
    revision, path = "/".join(place[1 : 1 + length]), "/".join(place[1 + length :])
    try:
        checked_revision(revision)
    except InvalidInput as error:
        raise _invalid(f"{revision[:80]!r} is not a revision") from error
    file = path or shown
    return msgspec.structs.replace(repo, revision=revision, file=_path(file) if file else None)


def _file_shown(query: str) -> str:
    """Return the file whose header a page of the Hub shows, if the address says so."""
    try:
        return parse_qs(query, max_num_fields=32).get("show_file_info", [""])[0]
    except ValueError as error:
        raise _invalid("the address has too many parameters") from error


def _path(text: str) -> str:
    if not is_safe_path(text):
        raise _invalid("the address names no file")
    return text


def is_safe_path(path: str) -> bool:
    """Whether a path is possible in a repo and safe to print: relative, printable, bounded, without `..`."""
    if not 0 < len(path) <= 512 or not path.isprintable() or "\\" in path:
        return False
    return all(part not in ("", ".", "..") for part in path.split("/"))


_ADDRESS = re.compile(
    r"(?<![\w./:=?@-])(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com)/[^\s\"'<>()\[\]`]+", re.I
)
_LIBRARY = re.compile(r"(?<![\w./:=?@-])(?:hf|huggingface)://([^\s\"'<>()\[\]`]+)", re.I)
_BY_SSH = re.compile(r"git@(?:hf\.co|huggingface\.co):([^\s\"']+?)(?:\.git)?(?=[\s\"']|$)", re.I)
_BEHIND_AN_ADDRESS = ".,;:!?"
_NAMED = re.compile(
    r"(?<![\w./~\\:-])@?([A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,94}\w(?:[:@][A-Za-z0-9_][\w.+-]*\w)?)(?![\w/\\])",
    re.ASCII,
)
_SAID = re.compile(
    r"(?:(?<!\S)-hfr?|--hf-repo|--model|--repo|repo_?id|hf_?-?repo|model|repo|FROM|get|pull|run|download|from_pretrained)"
    r"[\s=:(\"'`@]*$",
    re.I,
)
_SPACED = re.compile(r"([\w.-]+)\s*[/\\]\s*([\w.:@-]+)")
_IN_STUDIO = re.compile(r"[/\\]models[/\\]([\w.-]+)[/\\]([\w.-]+)[/\\][^/\\\s]+\.gguf", re.I)
_IN_CACHE = re.compile(r"(?:^|[/\\\s])([A-Za-z0-9-]+)_([\w.-]+?-GGUF)_\S+\.gguf", re.I)
_OF_OTHERS = re.compile(  # options whose values look like a quantisation or a file of the repo
    r"(?<!\S)(?:-ct[kv]d?|--cache-type-[kv]\S*|-mm|--mmproj|-md|--model-draft|-a|--alias|-o|--local-dir)[\s=]+\S+", re.I
)
_LABEL = re.compile(rf"(?<![A-Za-z0-9])({QUANTISATION})(?![A-Za-z0-9_])", re.I)
_FILE = re.compile(r"(?:-hff|--hf-file|filename|file)[\s=:(\"'`]+([\w./-]+\.gguf)|\s([\w./-]+\.gguf)(?=\s|$)", re.I)


class Mention(msgspec.Struct, frozen=True):
    """The part of a text that names a repo; `file` and `variant` are named elsewhere in the text."""

    reference: str
    file: str | None = None
    variant: str | None = None


def mention_in(text: str) -> Mention | None:
    """Return the one repo that a text mentions, with the file or quantisation that it also names."""
    found = dict.fromkeys(_addresses(text)) or dict.fromkeys(_names(text))
    if len(found) != 1:
        return None
    reference = next(iter(found))
    rest = _OF_OTHERS.sub(" ", text.replace(reference, " "))
    files = {a or b for a, b in _FILE.findall(rest)}
    labels = {label.lower(): label for label in _LABEL.findall(rest)}
    return Mention(
        reference,
        next(iter(files)) if len(files) == 1 else None,
        next(iter(labels.values())) if len(labels) == 1 else None,
    )


def _addresses(text: str) -> Iterator[str]:
    for address in _ADDRESS.findall(text):
        yield address.rstrip(_BEHIND_AN_ADDRESS)
    for path in _LIBRARY.findall(text):
        yield f"hf://{path.rstrip(_BEHIND_AN_ADDRESS)}"
    yield from _BY_SSH.findall(text)


def _names(text: str) -> Iterator[str]:
    """Yield each `owner/name` that stands where a repo is expected, or whose name contains GGUF."""
    for found in (*_IN_STUDIO.finditer(text), *_IN_CACHE.finditer(text)):
        yield f"{found[1]}/{found[2]}"
        return
    if spaced := _SPACED.fullmatch(text):
        yield f"{spaced[1]}/{spaced[2]}"
        return
    for found in _NAMED.finditer(text):
        name, before = found[1], text[: found.start()]
        if name.lower().endswith(".gguf"):
            continue
        if "gguf" in name.lower() or _SAID.search(before) or before.strip(" \t\"'`(@") == "":
            yield name
