"""What one client does, each as a script: a generator of asks that is sent the replies."""

from lab.bench.ask import Ask, Call, Messages, Reply, Script, ToolDict, says
from lab.bench.texts import Texts


def agent_loop(texts: Texts) -> Script:
    """An agent reports what it found and is asked on, twelve times: the prompt only grows."""
    chat = [says("system", texts.text(1500))]
    for _ in range(12):
        chat = [*chat, says("user", texts.question(150, 350))]
        (reply,) = yield [Ask(chat, texts.reply(48))]
        chat = [*chat, reply.message]


def shortened(texts: Texts) -> Script:
    """The model thinks, and the client sends back only what it said then; once it keeps only half of that."""
    chat = [says("system", texts.text(800))]
    for turn in range(8):
        chat = [*chat, says("user", texts.question(100, 250))]
        (reply,) = yield [Ask(chat, texts.reply(96), thinks=True)]
        kept = reply.content[: len(reply.content) // 2] if turn == 4 else reply.content
        chat = [*chat, says("assistant", kept)]


def edit_and_return(texts: Texts) -> Script:
    """An old message is written anew, the talk goes on from there; then the first branch goes on after all."""
    chat = [says("system", texts.text(800))]
    asked = []
    for _ in range(6):
        chat = [*chat, says("user", texts.question(150, 300))]
        asked.append(chat)
        (reply,) = yield [Ask(chat, texts.reply(40))]
        chat = [*chat, reply.message]
    edited = [*asked[2][:-1], says("user", texts.question(150, 300))]
    for _ in range(3):
        (reply,) = yield [Ask(edited, texts.reply(40))]
        edited = [*edited, reply.message, says("user", texts.question(150, 300))]
    on, on_otherwise = ([*chat, says("user", texts.question(150, 300))] for _ in range(2))
    for branch in (on, edited, on_otherwise):
        yield [Ask(branch, texts.reply(40))]


def regenerate(texts: Texts) -> Script:
    """The same prompt again, until the reply pleases."""
    chat = [says("system", texts.text(800))]
    for num_tries in (1, 3, 2, 3, 1):
        chat = [*chat, says("user", texts.question(150, 300))]
        for _ in range(num_tries):
            (reply,) = yield [Ask(chat, texts.reply(40))]
        chat = [*chat, reply.message]


def titles(texts: Texts) -> Script:
    """Between the turns the client asks for a title, under another header, and quotes the chat."""
    chat = [says("system", texts.text(800))]
    header = says("system", texts.text(200))
    for _ in range(6):
        question = texts.question(150, 300)
        chat = [*chat, says("user", question)]
        (reply,) = yield [Ask(chat, texts.reply(40))]
        chat = [*chat, reply.message]
        yield [Ask([header, says("user", f"{question}\n\n{reply.content}")], texts.reply(12))]


def tool_loop(texts: Texts) -> Script:
    """One question, six calls with long results, and then a new question after all of them."""
    tools = [_tool("look_up"), _tool("send_letter")]
    chat = [says("system", texts.text(600)), says("user", texts.question(80, 150))]
    for turn in range(3):
        for number in range(6):
            (reply,) = yield [Ask(chat, texts.reply(40), tools)]
            asking = _with_a_call(reply, f"call_{turn}_{number}")
            chat = [*chat, asking.message, *_results(asking, texts)]
        (reply,) = yield [Ask(chat, texts.reply(40), tools)]
        chat = [*chat, says("assistant", reply.content), says("user", texts.question(80, 150))]


def volatile_header(texts: Texts) -> Script:
    """The client puts a line into its header that is another one on every request, as Claude Code does."""
    header = texts.text(1200)
    chat: Messages = []
    for number in range(8):
        chat = [*chat, says("user", texts.question(100, 250))]
        line = f"x-anthropic-billing-header: cc_version=2.1.{number}; cch={number * 7919 % 65536:05x};\n"
        counted = [says("system", header), *chat]
        (reply,) = yield [Ask([says("system", line + header), *chat], texts.reply(40), counted=counted)]
        chat = [*chat, reply.message]


def document(texts: Texts) -> Script:
    """One long document, and long questions about it that follow it in the same message."""
    header, text = says("system", texts.text(200)), texts.text(3500)
    for _ in range(6):
        yield [Ask([header, says("user", f"{text}\n\n{texts.question(300, 600)}")], texts.reply(40))]


def restart(texts: Texts) -> Script:
    """The server is stopped and started again in the middle of a chat."""
    chat = [says("system", texts.text(1500))]
    for turn in range(8):
        chat = [*chat, says("user", texts.question(150, 300))]
        (reply,) = yield [Ask(chat, texts.reply(40), after_restart=turn == 4)]
        chat = [*chat, reply.message]


def outgrown(texts: Texts) -> Script:
    """A chat that outgrows the window. Where the server refuses it, the client drops the oldest turn, then the next."""
    header, whole = says("system", texts.text(150)), list[Messages]()
    kept: list[Messages] = []
    for _ in range(24):
        question = says("user", texts.question(60, 120))
        kept, whole = [*kept, [question]], [*whole, [question]]
        counted = [header, *_joined(whole)]
        (reply,) = yield [Ask([header, *_joined(kept)], texts.reply(32), counted=counted)]
        while reply.is_refused and len(kept) > 1:
            kept = kept[1:]
            (reply,) = yield [Ask([header, *_joined(kept)], texts.reply(32), counted=counted)]
        kept, whole = ([*turns[:-1], [question, reply.message]] for turns in (kept, whole))


def resumed(texts: Texts) -> Script:
    """One very long prompt, and then short questions about it."""
    chat = [says("system", texts.text(20000))]
    for _ in range(4):
        chat = [*chat, says("user", texts.question(8))]
        (reply,) = yield [Ask(chat, texts.reply(8))]
        chat = [*chat, reply.message]


def _joined(turns: list[Messages]) -> Messages:
    return [message for turn in turns for message in turn]


def _with_a_call(reply: Reply, call_id: str) -> Reply:
    """What the model wanted to call; if it only talks, then a call in place of its words."""
    return reply if reply.calls else Reply(calls=(Call(call_id, "look_up", '{"place": "town"}'),))


def _results(reply: Reply, texts: Texts) -> Messages:
    return [{**says("tool", texts.text(150, 350)), "tool_call_id": call.id} for call in reply.calls]


def _tool(name: str) -> ToolDict:
    parameters = {"type": "object", "properties": {"place": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": "a tool", "parameters": parameters}}
