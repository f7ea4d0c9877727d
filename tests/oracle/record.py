"""Record the keys of windows as Kafka Streams 4.1.1 writes them: `python -m tests.oracle.record`.

Fetches the jars into a temporary folder, runs `WindowedKeys.java` and replaces `windowed_keys.jsonl`, which tests read.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tidegate.runtime.install.jars import retrieve
from tidegate.runtime.install.java import java_command

HERE = Path(__file__).parent
VECTORS = HERE / "windowed_keys.jsonl"


def main() -> None:
    """Write the vectors."""
    with TemporaryDirectory() as folder:
        jars = Path(folder) / "jars"
        retrieve(jars, HERE / "ivy.xml")
        path = os.pathsep.join(str(jar) for jar in sorted(jars.rglob("*.jar")))
        command = [java_command(), "-cp", path, str(HERE / "WindowedKeys.java")]
        VECTORS.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
