"""The address of a folder in the lake: what configurations name, what travels to tasks, and what messages show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.contracts.errors import InvalidValue, UserError

OPTIONS = {"s3": ("endpoint", "profile", "region", "secret_file"), "gs": ("secret_file",), "az": ()}
"""Names that a place may need beside its url, by scheme. None is a secret; a secret is read from `secret_file`."""

_NO_CONDITION = (
    "a URL of HDFS, which has no put that succeeds only if there is no file yet: drivers would not be fenced"
)
_WHY_NOT = {"hdfs": _NO_CONDITION, "viewfs": _NO_CONDITION, "webhdfs": _NO_CONDITION}

_NAME_ANOTHER = f"name a folder, or a url that begins with {', '.join(f'{scheme}://' for scheme in OPTIONS)}"
_INSTEAD = {
    "s3a": "name a folder, or write s3://BUCKET/FOLDER",
    "s3n": "name a folder, or write s3://BUCKET/FOLDER",
    "file": "name a folder by its path alone",
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs", "azure"), "name a folder, or write az://CONTAINER/FOLDER"),
}

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):/.*")
"""A path with a colon before its first slash is taken for a url, too: as a path it would be a folder by accident."""


@dataclass(frozen=True)
class Place:
    """A folder of a file system, or a prefix of an object store, and how to reach it.

    `url`: a path, absolute once the configuration is loaded, or `s3://bucket/prefix`, `gs://...`, `az://...`, without
    a slash at the end. `options`: what `lake_options` says, by name, sorted; never a secret, so a place may be pickled,
    logged and shown. Two places are equal if both are; `str` shows the url alone.
    """

    url: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, url: str | Path, options: Mapping[str, str] | None = None) -> Place:
        """Return the place that a configuration names."""
        text = str(url)
        scheme, separator, rest = text.rpartition("://")
        plain = scheme + separator + rest.rstrip("/")
        return cls(plain or text[:1], tuple(sorted((options or {}).items())))

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.url.rstrip('/')}/{name}", self.options)

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """Return the last name of the url."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Place:
        """Return the place that this one is in."""
        return Place.of(self.url.rpartition("/")[0] or "/", dict(self.options))

    @property
    def scheme(self) -> str | None:
        """Return the scheme of the url, such as `s3`; None for a folder of a file system."""
        found = _SCHEME.fullmatch(self.url)
        return None if found is None else found[1]

    @property
    def is_local(self) -> bool:
        """Return True for a folder of a file system."""
        return self.scheme is None

    @property
    def folder(self) -> Path:
        """Return the folder as a path. Only for a place that `is_local`."""
        if not self.is_local:
            raise AssertionError(f"not a folder: {self.url}")
        return Path(self.url)

    @property
    def for_spark(self) -> str:
        """Return the url by which Spark reads it: Hadoop's client for S3 has the scheme s3a."""
        return re.sub(r"^s3://", "s3a://", self.url)

    def within(self, folder: Path) -> Place:
        """Return the place with relative paths, its own or that of `secret_file`, resolved against the folder."""
        if self.is_local:
            return Place(str(folder / self.url), self.options)
        resolved = {name: str(folder / value) if name == "secret_file" else value for name, value in self.options}
        return Place.of(self.url, resolved)


def place_named(url: str | Path, lake_options: Mapping[str, str] | None = None) -> Place:
    """Return the place that a program names, and how to reach it: a folder from where it runs, or a url.

    Raise UserError if the url is of no storage for lakes, or if an option is none of that storage.
    """
    place = Place.of(url, lake_options)
    problem = problem_of(place) or options_problem(lake_options or {}, place)
    if problem is not None:
        raise UserError(problem.cause, value=place, remedy=problem.remedy)
    return place.within(Path.cwd())


def problem_of(place: Place) -> InvalidValue | None:
    """Return why a configuration cannot name the place; None if it can."""
    if place.is_local:
        return None
    if place.scheme not in OPTIONS:
        usual = "a URL of no storage that Tidegate can use"
        return InvalidValue(_WHY_NOT.get(place.scheme or "", usual), _INSTEAD.get(place.scheme or "", _NAME_ANOTHER))
    bucket = place.url.partition("://")[2].partition("/")[0]
    return None if bucket else InvalidValue("the url names no bucket", f"write {place.scheme}://BUCKET/PREFIX")


def options_problem(options: Mapping[str, str], place: Place) -> InvalidValue | None:
    """Return why the options cannot be given for the place; None if they can."""
    if options and place.is_local:
        return InvalidValue("a folder has no options", "remove lake_options, or name an object store as lake")
    known = OPTIONS.get(place.scheme or "", ())
    unknown = sorted(set(options) - set(known))
    remedy = f"use {', '.join(known) or 'none'}; credentials come from the environment or a role of each machine"
    return InvalidValue(f"no option of {place.scheme}://: {', '.join(unknown)}", remedy) if unknown else None
