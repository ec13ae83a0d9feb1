"""The chat template of the models: ChatML with tools, tool calls and reasoning.

As in many templates of real models, the reasoning of a turn is shown only until the user speaks again: the next
prompt then differs from what the model has read and written.
"""

CHAT_TEMPLATE = """\
{%- set turn = namespace(start=-1) -%}
{%- for message in messages -%}
    {%- if message.role == "user" -%}
        {%- set turn.start = loop.index0 -%}
    {%- endif -%}
{%- endfor -%}
{%- if tools -%}
    {{- "<|im_start|>system\\nYou may call these tools:\\n" -}}
    {%- for tool in tools -%}
        {{- tool | tojson -}}
        {{- "\\n" -}}
    {%- endfor -%}
    {{- "<|im_end|>\\n" -}}
{%- endif -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message.role + "\\n" -}}
    {%- if message.reasoning_content and loop.index0 > turn.start -%}
        {{- "<think>" + message.reasoning_content + "</think>" -}}
    {%- endif -%}
    {{- message.content or "" -}}
    {%- for call in message.tool_calls or [] -%}
        {{- "<tool_call>" -}}
        {{- call.function | tojson -}}
        {{- "</tool_call>" -}}
    {%- endfor -%}
    {{- "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|im_start|>assistant\\n" -}}
{%- endif -%}
"""
