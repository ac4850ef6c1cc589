"""What jinja2, set up by Transformers, makes of a template."""

import datetime

import transformers.utils.chat_template_utils as hf

NOW = datetime.datetime(2024, 7, 6, 5, 4, 3)
NOW_SECONDS = int((NOW - datetime.datetime(1970, 1, 1)).total_seconds())


class FixedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


hf.datetime = FixedDatetime


def render(job):
    """The text, or None where the template fails. job: template, messages, tools, variables,
    add_generation_prompt."""
    try:
        rendered, _ = hf.render_jinja_template(
            conversations=[hf._normalize_chat_messages(job["messages"])],
            tools=job["tools"],
            chat_template=job["template"],
            add_generation_prompt=job["add_generation_prompt"],
            **job["variables"],
        )
        return rendered[0].encode().decode()
    except Exception:  # whatever Python raises is a failure of the template
        return None
