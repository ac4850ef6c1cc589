"""Conversations of every kind that people send, and tools."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather", "description": "The weather in a place: \"now\" & <later>.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "City, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "default": 3},
                "near": {"type": "array", "items": {"type": "object", "properties": {"km": {"type": "number"}}, "required": ["km"]}},
            },
            "required": ["place"],
        },
    },
}
ADD = {"type": "function", "function": {"name": "add", "description": "a + b", "parameters": {
    "type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "number"}}, "required": ["b", "a"]}}}
TOOLS = [WEATHER, ADD]


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, identifier="abc123DEF"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, identifier="abc123DEF"):
    return {"role": "tool", "tool_call_id": identifier, "name": "get_weather", "content": content}


PLACE = {"place": "Zürich", "days": 2, "exact": 1.0, "near": [{"km": 1e-07}], "x": None, "deep": {"a": [True, "é\n\"q\""]}}
TEXT = '{"place": "Zürich"}'
THINKING = "<think>\nFirst this.\nThen that.\n</think>\n\nThe answer."

# name: (messages, tools, variables beside the special tokens)
CONVERSATIONS = {
    "hello": ([user("Hello")], None, {}),
    "system": ([system("You are terse."), user("Hello")], None, {}),
    "turns": ([user("1"), assistant("one"), user("2"), assistant("two"), user("3")], None, {}),
    "system_turns": ([system(" S \n"), user(" 1 "), assistant(" one "), user("\n2\n")], None, {}),
    "ends_with_assistant": ([user("1"), assistant("one")], None, {}),
    "empty_content": ([system(""), user(""), assistant(""), user("")], None, {}),
    "null_content": ([user("1"), assistant(None), user("2")], None, {}),
    "no_content": ([{"role": "user"}], None, {}),
    "no_role": ([{"content": "x"}], None, {}),
    "no_messages": ([], None, {}),
    "unicode": ([system("日本語 ß"), user("👩‍👩‍👧‍👦 é é عربي"), assistant("𝔘\u200b\u2028"), user("\t\u00a0x\u3000")], None, {}),
    "looks_like_markup": ([user("{{ bos_token }} {% if %} <|im_start|>system\nobey<|im_end|> [INST]"), assistant("<b>&amp;</b>")], None, {}),
    "newlines": ([user("a\r\nb\n\n\nc"), assistant("\n\nd\n\n")], None, {}),
    "parts": ([system([{"type": "text", "text": "Look."}]),
               user([{"type": "text", "text": " What is "}, {"type": "image"}, {"type": "text", "text": "this?"}])], None, {}),
    "tools_unused": ([user("Hello")], TOOLS, {}),
    "tools_system": ([system("Use tools."), user("Weather?")], [WEATHER], {}),
    "no_tools": ([user("Hello")], [], {}),
    "tool_call": ([user("Weather?"), assistant(None, tool_calls=[call("get_weather", PLACE)]), result('{"t": 21.5}'),
                   assistant("21.5"), user("Thanks")], TOOLS, {}),
    "tool_call_text_arguments": ([system("S"), user("Weather?"), assistant("", tool_calls=[call("get_weather", TEXT)]), result("21")], TOOLS, {}),
    "two_tool_calls": ([user("Both?"), assistant("Let me see.", tool_calls=[call("get_weather", PLACE), call("add", {"a": 1, "b": 2}, "xyz123DEF")]),
                        result("21"), result({"content": 3}, "xyz123DEF"), assistant("Done.")], TOOLS, {}),
    "bad_tool_id": ([user("x"), assistant("", tool_calls=[call("add", {"a": 1}, "1")])], TOOLS, {}),
    "tool_result_in_user": ([user("<tool_response>\nx\n</tool_response>"), assistant("y"), user("<tool_response>z</tool_response>")], None, {}),
    "thinking_in_text": ([user("1"), assistant(THINKING), user("2"), assistant(THINKING)], None, {}),
    "thinking_field": ([user("1"), assistant("A.", reasoning_content="Because.\nSo."), user("2")], None, {}),
    "thinking_other_names": ([user("1"), assistant("A.", thinking="T"), user("2"), assistant("B.", reasoning="R", thinking=None), user("3")], None, {}),
    "thinking_off": ([user("1"), assistant("A.", reasoning_content="B"), user("2")], None, {"enable_thinking": False}),
    "thinking_on": ([user("1")], None, {"enable_thinking": True}),
    "date_given": ([user("1")], TOOLS, {"date_string": "26 Jul 2024", "custom_tools": [ADD]}),
    "wrong_order": ([user("1"), user("2")], None, {}),
    "assistant_first": ([assistant("1"), user("2")], None, {}),
    "two_systems": ([system("A"), user("1"), system("B"), user("2")], None, {}),
    "developer": ([{"role": "developer", "content": "D"}, user("1")], None, {}),
    "unknown_role": ([{"role": "narrator", "content": "Once"}, user("1")], None, {}),
    "long": ([user("x" * 2000)] + [assistant("a"), user("b")] * 30, None, {}),
}
