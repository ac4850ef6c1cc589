"""Writes snippets.json and conversations.json: what jinja2, set up by Transformers, makes of templates.

    .venv/oracles/bin/python tests/golden/chat_templates/make_golden.py

scripts/oracles makes that Python. A result is the text, or null where the template fails. Every run
writes the same bytes.
"""

import json
import pathlib
import sys
import warnings

import jinja2
import transformers

import oracle
from conversations import CONVERSATIONS
from snippets import EXPRESSIONS, VARIABLES
from statements import REFUSED, STATEMENTS

HERE = pathlib.Path(__file__).resolve().parent
PINNED = {"jinja2": "3.1.6", "transformers": "5.24.0"}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def snippet_jobs():
    for template in [f"{{{{ {e} }}}}" for e in EXPRESSIONS] + STATEMENTS:
        yield {"template": template, "messages": [], "tools": None, "variables": VARIABLES,
               "add_generation_prompt": False, "now": oracle.NOW_SECONDS}


def conversation_jobs(template, tokens):
    """(name, job) for every conversation, with and without a prompt for the answer."""
    for name, (messages, tools, variables) in CONVERSATIONS.items():
        for prompt in (False, True):
            yield name, {"template": template, "messages": messages, "tools": tools,
                         "variables": {**tokens, **variables}, "add_generation_prompt": prompt,
                         "now": oracle.NOW_SECONDS}


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, indent=0) + "\n"
    (HERE / name).write_text(text, newline="\n")
    print(f"{name}: {len(text.encode())} bytes")


def main():
    found = {"jinja2": jinja2.__version__, "transformers": transformers.__version__}
    if found != PINNED:
        sys.exit(f"make_golden: versions {found}, pinned are {PINNED}")
    warnings.simplefilter("ignore")  # unknown escapes in the strings of templates
    snippets = [{"template": job["template"], "text": oracle.render(job)} for job in snippet_jobs()]
    write("snippets.json", {"versions": found, "now": oracle.NOW_SECONDS, "variables": VARIABLES,
                            "snippets": snippets, "refused": REFUSED})
    results = {}
    for path in sorted((HERE / "templates").glob("*.jinja")):
        jobs = conversation_jobs(path.read_text(), TOKENS)
        results[path.name] = [{"conversation": name, "prompt": job["add_generation_prompt"],
                               "text": oracle.render(job)} for name, job in jobs]
    conversations = {name: {"messages": messages, "tools": tools, "variables": {**TOKENS, **variables}}
                     for name, (messages, tools, variables) in CONVERSATIONS.items()}
    write("conversations.json", {"versions": found, "now": oracle.NOW_SECONDS, "conversations": conversations,
                                 "results": results})
    texts = [r["text"] for rows in results.values() for r in rows]
    print(f"{len(snippets)} snippets, {sum(s['text'] is None for s in snippets)} of them errors; "
          f"{len(texts)} conversations, {texts.count(None)} of them errors")


if __name__ == "__main__":
    main()
