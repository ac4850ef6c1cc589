"""Runs every differential check against an octavo binary: see the script `run` beside this file."""

import pathlib
import sys
import tempfile

from harness import Harness


def main(binary, model=None):
    try:
        import check_rules
    except ImportError as error:
        print(f"skipped: all differential tests ({error})")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    import check_chat_templates
    import check_compare
    import check_files
    import check_greedy
    import check_tokenizer
    import check_transformers

    with tempfile.TemporaryDirectory() as scratch:
        harness = Harness(pathlib.Path(binary).resolve(), scratch)
        check_rules.run(harness, model)
        check_files.run(harness)
        check_compare.run(harness, model)
        check_tokenizer.run(harness, model)
        check_transformers.run(harness)
        check_chat_templates.run(harness, model)
        check_greedy.run(harness, model)
    if not model:
        print("skipped: comparison on a real checkpoint (no MODEL_DIR given)")
        harness.counts["skipped"] += 1
    print(harness.summary())
    return 1 if harness.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
