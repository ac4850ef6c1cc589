"""Chat templates against jinja2 as Transformers sets it up: golden cases again, live, and the
templates of real models."""

import json
import os
import pathlib
import subprocess
import sys

from harness import Skip

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "chat_templates"
sys.path.insert(0, str(GOLDEN))


def compare(harness, jobs):
    import oracle

    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    result = subprocess.run([harness.built("octavo_render_templates")], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    assert len(answers) == len(jobs), f"{len(answers)} answers to {len(jobs)} jobs"
    errors = 0
    for job, answer in zip(jobs, answers):
        expected = oracle.render(job)
        errors += expected is None
        assert answer.get("text") == expected, (
            f"{job['template'][:200]!r} with {json.dumps(job['messages'])[:300]}: "
            f"{answer}, expected {expected!r}")
    return f"{len(jobs)} renderings, {errors} of them errors"


def check_snippets(harness):
    import make_golden

    return compare(harness, list(make_golden.snippet_jobs()))


def check_written_templates(harness):
    import make_golden

    return compare(harness, [job for path in sorted((GOLDEN / "templates").glob("*.jinja"))
                             for _, job in make_golden.conversation_jobs(path.read_text(), make_golden.TOKENS)])


def check_model(harness, directory):
    import make_golden

    config = json.loads((directory / "tokenizer_config.json").read_text())
    template = config.get("chat_template")
    if (directory / "chat_template.jinja").exists():
        template = (directory / "chat_template.jinja").read_text()
    if not isinstance(template, str):
        raise Skip("the model has no chat template")
    tokens = {}
    for name in ("bos_token", "eos_token"):
        token = config.get(name)
        token = token["content"] if isinstance(token, dict) else token
        if token is not None:
            tokens[name] = token
    return compare(harness, [job for _, job in make_golden.conversation_jobs(template, tokens)])


def run(harness, model):
    harness.check("chat templates: snippets", check_snippets)
    harness.check("chat templates: written ones", check_written_templates)
    directories = [pathlib.Path(model)] if model else []
    if tokenizers := os.environ.get("OCTAVO_TOKENIZERS"):
        directories += sorted(p.parent for p in pathlib.Path(tokenizers).glob("*/tokenizer_config.json"))
    for directory in directories:
        harness.check(f"chat templates: {directory.name}", check_model, directory)
