"""The entries of the registry that a definition makes: one for each version that is served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from dray.api.kinds import Kind
from dray.api.times import parse_time
from dray.apiserver.columns import AGE, NAME, Column, human_duration
from dray.apiserver.custom import paths
from dray.apiserver.custom.shape import Shape
from dray.apiserver.registry import ALL_VERBS, SCALE, STATUS, Resource, ScalePaths, version_priority
from dray.apiserver.schema import Schemas

Object = dict[str, Any]


def storage_version(definition: Object) -> str:
    return next((version["name"] for version in definition["spec"].get("versions") or () if version.get("storage")), "")


def shapes(definition: Object, schemas: Schemas) -> list[tuple[Object, Shape]]:
    """Every version with what its objects look like, the preferred one first."""
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    # What was written in another version may lack what this one adds.
    since = int(definition["metadata"].get("resourceVersion") or 0) if len(spec["versions"]) == 1 else None
    made = []
    for version in sorted(spec["versions"], key=lambda each: version_priority(each["name"])):
        kind = Kind(spec["group"], version["name"], names["plural"], names["kind"], spec["scope"] == "Namespaced")
        made.append((version, Shape(kind, (version.get("schema") or {}).get("openAPIV3Schema") or {}, schemas, since)))
    return made


def resources(definition: Object, versions: list[tuple[Object, Shape]]) -> list[Resource]:
    """An entry for each version that is served."""
    stored = storage_version(definition)
    leaving = bool(definition["metadata"].get("deletionTimestamp"))
    # Objects that were stored under another schema or in another version are shown as this one has them.
    unchanged = definition["metadata"].get("generation", 1) == 1
    return [
        _resource(definition, version, shape, stored, plain=unchanged and version["name"] == stored, leaving=leaving)
        for version, shape in versions
        if version.get("served")
    ]


def _resource(definition: Object, version: Object, shape: Shape, stored: str, *, plain: bool, leaving: bool) -> Resource:
    kind, names = shape.kind, definition["status"]["acceptedNames"]
    subresources, scale = _subresources(version.get("subresources") or {})
    return Resource(
        kind=kind,
        singular=names.get("singular") or kind.kind.lower(),
        list_kind=names.get("listKind") or "",
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        verbs=tuple(verb for verb in ALL_VERBS if not (leaving and verb == "create")),
        subresources=subresources,
        fields={".".join(paths.fields(each["jsonPath"])): "" for each in version.get("selectableFields") or ()},
        columns=columns(version.get("additionalPrinterColumns") or ()),
        generation=True,
        unconditional_update=False,
        any_finalizer=True,
        check=(shape.check,),
        to_stored=None if version["name"] == stored else _stored_as(f"{kind.group}/{stored}"),
        from_stored=None if plain else shape.viewed,
        structure=shape,
        stored_version=stored,
        scale=scale,
        warning=_deprecation(kind, version),
    )


def _stored_as(api_version: str) -> Callable[[Object], Object]:
    return lambda obj: {**obj, "apiVersion": api_version}


def _deprecation(kind: Kind, version: Object) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{kind.api_version} {kind.kind} is deprecated"


def _subresources(given: Object) -> tuple[tuple[Any, ...], ScalePaths | None]:
    made = [STATUS] if given.get("status") is not None else []
    wanted = given.get("scale")
    if wanted is None:
        return tuple(made), None
    selector = wanted.get("labelSelectorPath") or ""
    scale = ScalePaths(
        paths.fields(wanted["specReplicasPath"]),
        paths.fields(wanted["statusReplicasPath"]),
        paths.fields(selector) if selector else (),
    )
    return (*made, SCALE), scale


# ---------------------------------------------------------------------------------------------------------------- columns


def unreadable(definition: Object) -> Iterator[str]:
    """The paths of columns that will stay empty, with the reason."""
    for index, version in enumerate(definition["spec"].get("versions") or ()):
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            try:
                paths.parse(column.get("jsonPath") or ".a")
            except paths.PathError as error:
                yield f"spec.versions[{index}].additionalPrinterColumns[{number}].jsonPath: {error}; the column will be empty"


def columns(given: Any) -> tuple[Column, ...]:
    if not given:
        return NAME, AGE
    return NAME, *(_column(each) for each in given)


def _column(given: Object) -> Column:
    find = _path(given["jsonPath"])
    show = _SHOWN.get(given["type"], _text)

    def cell(obj: Object, now: float) -> Any:
        value = next(find(obj), None)
        return None if value is None else show(value, now)

    shown = "string" if given["type"] == "date" else given["type"]
    return Column(
        given["name"], cell, shown, (given.get("priority") or 0) > 0, given.get("format") or "", given.get("description") or ""
    )


@lru_cache(maxsize=4096)
def _path(text: str) -> paths.Find:
    """A path that cannot be read finds nothing; whoever wrote the definition was told."""
    try:
        return paths.parse(text)
    except paths.PathError:
        return lambda value: iter(())


def _text(value: Any, now: float) -> Any:
    if isinstance(value, str):
        return value
    from dray.apiserver.store import encode

    return encode(value).decode()


def _integer(value: Any, now: float) -> Any:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(value: Any, now: float) -> Any:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any, now: float) -> Any:
    return value if isinstance(value, bool) else None


def _date(value: Any, now: float) -> Any:
    try:
        return human_duration(now - parse_time(value))
    except (ValueError, TypeError, AttributeError):
        return "<invalid>"


_SHOWN: Final[dict[str, Callable[[Any, float], Any]]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
