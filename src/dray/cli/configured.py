"""A scheduler's configuration, read from the file that an option names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray.api.gates import Gates
    from dray.scheduling.config import Config


def read_config(file: Path, gates: Gates | None = None) -> Config:
    """Whatever is wrong with the file is a ConfigError, which names it."""
    from dray.api.yaml_text import unreadable
    from dray.scheduling.configuration import ConfigError, load

    try:
        return load(file.read_text(), gates)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: the scheduler configuration {unreadable(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
