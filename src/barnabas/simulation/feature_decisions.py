"""Second decisions about feature levels: which updates a quorum's controller allows, and what they write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.metadata.features import DEPENDENCIES, SUPPORTED_FEATURES
from barnabas.metadata.versions import METADATA_VERSIONS
from barnabas.simulation.controller_decisions import setting
from barnabas.simulation.second_decisions import Arguments, SecondDecision, costly

_CONTROLLERS_REGISTER: Final = 15
_BROKER: Final = 4


def _updated(
    view: Any, request: Any, api_version: int, kraft_version: int, actor: str, kraft_refusal: str | None = None
) -> object:
    """Returns the code, the levels, and the settings of the min ISR that the ELR needs."""
    wanted = {each.feature: each for each in request.feature_updates}
    levels = {name: each.max_version_level for name, each in wanted.items()}
    present = {**view.image.features, "kraft.version": kraft_version}
    for name, each in wanted.items():
        kind = 2 if api_version == 0 and each.allow_downgrade else each.upgrade_type
        is_fine = _is_allowed(view, name, levels[name], kind, present.get(name, 0), {**view.image.features, **levels})
        is_raised = name == "kraft.version" and levels[name] > kraft_version
        if not is_fine or (is_raised and kraft_refusal is not None):
            return ErrorCode.INVALID_UPDATE_VERSION, [], [], 0
    settings: list[tuple[str, str | None]] = []
    if levels.get("eligible.leader.replicas.version", 0) > 0:
        settings = _min_isrs(view)
    changed = [(name, level) for name, level in levels.items() if name != "kraft.version"]
    answered = len(wanted) if api_version < 2 else 0
    return ErrorCode.NONE, *(([], []) if request.validate_only else (changed, settings)), answered


def _min_isrs(view: Any) -> list[tuple[str, str | None]]:
    key = "min.insync.replicas"
    found: list[tuple[str, str | None]] = []
    if key not in view.image.config_of(_BROKER, ""):
        found.append(("", setting(view, "", key, "1")))
    for kind, name in sorted(view.image.configs):
        if kind == _BROKER and name != "" and key in view.image.config_of(kind, name):
            found.append((name, None))
    return found


def _is_allowed(view: Any, name: str, level: int, kind: int, now: int, levels: dict[str, int]) -> bool:
    if kind not in (1, 2, 3) or level < 0 or not _is_supported(view, name, level):
        return False
    if (level < now and kind == 1) or (level > now and kind != 1):
        return False
    if name == "metadata.version":
        lost = [each.level for each in METADATA_VERSIONS if each.changes_metadata and level < each.level <= now]
        return not lost
    if name == "kraft.version" and (level == now or kind != 1):
        return level == now
    if name not in {"share.version", "streams.version", *(each.name for each in SUPPORTED_FEATURES)}:
        return False
    return all(levels.get(needed, 0) >= least for needed, least in DEPENDENCIES.get((name, level), ()))


def _is_supported(view: Any, name: str, level: int) -> bool:
    own = view.config.node_id
    image = view.image
    nodes = [SUPPORTED_FEATURES, *(broker.features for broker in image.brokers.values())]
    if image.metadata_version >= _CONTROLLERS_REGISTER:
        nodes += [node.features for node_id, node in image.controllers.items() if node_id != own]
        if any(each.node_id != own and each.node_id not in image.controllers for each in view.config.voters):
            return False
    for features in nodes:
        ranges = {each.name: (each.min_version, each.max_version) for each in features}
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            return False
    return True


def _updated_of(result: Any, view: Any, *_: Any) -> object:
    levels = [(each.name, each.feature_level) for each, _ in result.records if each.NAME == "FeatureLevelRecord"]
    settings = [(each.resource_name, each.value) for each, _ in result.records if each.NAME == "ConfigRecord"]
    code = ErrorCode(result.response.error_code)
    return code, levels, settings, 0 if code else len(result.response.results)


def _near_updates(
    view: Any, request: Any, api_version: int, kraft_version: int, actor: str, kraft_refusal: str | None = None
) -> Iterator[Arguments]:
    make = type(request)
    names = (*(each.name for each in SUPPORTED_FEATURES), "share.version", "streams.version", "no.such.version")
    for name in names:
        now = view.image.features.get(name, 0)
        for level in {-1, 0, 1, 2, now - 1, now, now + 1, 22, 23, 27, 28}:
            for kind in (1, 2, 3) if level != 2 else (0, 1, 4):
                row = make.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                for version in (0, 1) if level == now else (0,):
                    yield view, make(feature_updates=[row]), 2, version, actor, None
    row = make.FeatureUpdateKey(feature=names[1], max_version_level=0, allow_downgrade=True)
    for version in (0, 1, 2):
        yield view, make(feature_updates=[row]), version, 1, actor, None
    raised = make.FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
    for refusal in (None, "not yet"):
        for only in (True, False):
            yield view, make(feature_updates=[raised], validate_only=only), 1, 0, actor, refusal
    elr = make.FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=1)
    for level in (22, 23, 27):
        both = make.FeatureUpdateKey(feature="metadata.version", max_version_level=level, upgrade_type=1)
        yield view, make(feature_updates=[elr, both]), 1, 1, actor, None


FEATURE_DECISIONS: Final = costly(
    SecondDecision("controller.kraft.features:update_features", _updated, _near_updates, _updated_of),
)
