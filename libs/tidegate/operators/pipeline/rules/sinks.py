"""How the windows of results are named in the topics that they are written to."""

from __future__ import annotations

from tidegate.contracts.config.key_rules import (
    AddedWindows,
    KeyRules,
    OutputWindows,
    Windows,
    added_windows,
    output_windows_of,
    writable_windows,
)
from tidegate.contracts.config.operator_config import OperatorConfig, OutputDeclaration
from tidegate.contracts.config.rules import OperatorRules
from tidegate.operators.pipeline.rules.places import as_config
from tidegate.operators.registry import config_type


def checked(output: OutputWindows, maker: OperatorRules | None, windows: Windows) -> OutputWindows:
    """Return how a topic names windows; raise InvalidValue or ValidationError if it cannot.

    `maker`: the step that has put the windows into the keys; None: the input names them so: `windows`.
    """
    if maker is None:
        return writable_windows(output, windows)
    written = maker.model_dump(mode="json", exclude_defaults=True) | {"input": "input", "output_windows": output}
    config_type(maker.kind).model_validate(written)
    return output


def added(output: OutputWindows, maker: OperatorRules | None, pipeline: KeyRules) -> AddedWindows | None:
    """Return how windows are added to results; None: their keys have none, or headers name them already."""
    return added_windows(pipeline, output) if maker is None else _writer(maker, output).adds_windows()


def declared(output: OutputWindows, maker: OperatorRules | None, pipeline: KeyRules) -> OutputDeclaration:
    """Return what is known of a topic of results: how it names windows, and when these close."""
    if maker is None:
        return OutputDeclaration(windows=output_windows_of(pipeline, output))
    return _writer(maker, output).writes()


def _writer(maker: OperatorRules, output: OutputWindows) -> OperatorConfig:
    return as_config(maker).model_copy(update={"output_windows": output})
