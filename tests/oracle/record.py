"""Record what Kafka Streams 4.1.1 does: `python -m tests.oracle.record`.

Fetches the jars into a temporary folder, runs the programs beside this module, and replaces what tests read:
`windowed_keys.jsonl`, the keys of windows as Kafka Streams writes them; `chains.jsonl.gz`, the results of chains; and
`stream_joins.jsonl.gz`, those of joins of two streams.
"""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tidegate.runtime.install.jars import retrieve
from tidegate.runtime.install.java import java_command

HERE = Path(__file__).parent
VECTORS = HERE / "windowed_keys.jsonl"
CHAINS = HERE / "chains.jsonl.gz"
STREAM_JOINS = HERE / "stream_joins.jsonl.gz"


def main() -> None:
    """Write the vectors and the scenarios."""
    with TemporaryDirectory() as folder:
        jars = Path(folder) / "jars"
        retrieve(jars, HERE / "ivy.xml")
        path = os.pathsep.join(str(jar) for jar in sorted(jars.rglob("*.jar")))
        VECTORS.write_text(_printed("WindowedKeys", path))
        for program, file in (("Chains", CHAINS), ("StreamJoins", STREAM_JOINS)):
            file.write_bytes(gzip.compress(_printed(program, path).encode(), mtime=0))


def _printed(program: str, class_path: str) -> str:
    command = [java_command(), "-cp", class_path, str(HERE / f"{program}.java")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
