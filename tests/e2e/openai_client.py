"""The official OpenAI client: streaming and not, logprobs, n, stop, and how it tells errors. Run by
openai_client_test.sh in an environment that has it."""

import openai

from serve_lib import Server, checks, main, scratch_folder
from serve_models import chat_model

equal, ok = checks.equal, checks.ok
USER = [{"role": "user", "content": "one two three"}]


def models():
    listed = client.models.list().data
    equal("models", [m.id for m in listed], [name])
    equal("one model", client.models.retrieve(name).id, name)


def chats():
    reply = client.chat.completions.create(model=name, messages=USER, max_tokens=6, temperature=0)
    choice = reply.choices[0]
    equal("a chat", (choice.message.role, choice.finish_reason, reply.usage.completion_tokens), ("assistant", "length", 6))
    chunks = list(client.chat.completions.create(model=name, messages=USER, max_tokens=6, temperature=0, stream=True,
                                                 stream_options={"include_usage": True}))
    equal("streamed", "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), choice.message.content)
    equal("its end", [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason], ["length"])
    equal("its usage", (chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 6))
    ends = {"model": name, "messages": USER, "max_tokens": 200, "temperature": 0, "stop": [" "]}
    with client.chat.completions.stream(**ends) as stream:
        for _ in stream:
            pass
        equal("the client's own gathering", stream.get_final_completion().choices[0].message.content,
              client.chat.completions.create(**ends).choices[0].message.content)
    reply = client.chat.completions.create(model=name, messages=USER, max_tokens=4, n=3, temperature=1, seed=3)
    equal("n", [c.index for c in reply.choices], [0, 1, 2])
    again = client.chat.completions.create(model=name, messages=USER, max_tokens=4, n=3, temperature=1, seed=3)
    equal("seed", [c.message.content for c in again.choices], [c.message.content for c in reply.choices])
    reply = client.chat.completions.create(model=name, messages=USER, max_tokens=5, temperature=0, logprobs=True, top_logprobs=2)
    content = reply.choices[0].logprobs.content
    ok("logprobs", len(content) == 5 and all(len(e.top_logprobs) == 2 and e.logprob <= 0 and e.bytes for e in content), content)
    reply = client.chat.completions.create(model=name, messages=USER, max_completion_tokens=50, temperature=0, stop=[" "])
    ok("stop", reply.choices[0].finish_reason == "stop" and " " not in reply.choices[0].message.content, reply)


def completions():
    reply = client.completions.create(model=name, prompt="one two", max_tokens=6, temperature=0)
    equal("a completion", (reply.object, reply.choices[0].finish_reason), ("text_completion", "length"))
    chunks = list(client.completions.create(model=name, prompt="one two", max_tokens=6, temperature=0, stream=True))
    equal("streamed", "".join(c.choices[0].text for c in chunks), reply.choices[0].text)
    reply = client.completions.create(model=name, prompt=["one", "two"], n=2, max_tokens=2, echo=True, logprobs=1)
    equal("prompts times n", sorted(c.index for c in reply.choices), [0, 1, 2, 3])
    ok("echo and logprobs", reply.choices[0].text.startswith("one") and
       len(reply.choices[0].logprobs.tokens) == len(reply.choices[0].logprobs.token_logprobs), reply.choices[0])


def errors():
    def kind(call):
        try:
            call()
            return "no error"
        except openai.APIStatusError as e:
            ok("  with message and request id", e.message and e.request_id, e)
            return type(e).__name__

    def create(**fields):
        return lambda: client.chat.completions.create(**{"model": name, "messages": USER, "max_tokens": 1, **fields})

    equal("a bad parameter", kind(create(temperature=-1)), "BadRequestError")
    equal("an unknown model", kind(create(model="other")), "NotFoundError")
    equal("too long", kind(create(max_tokens=10 ** 6)), "BadRequestError")
    wrong = openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0)
    equal("a wrong key", kind(lambda: wrong.models.list()), "AuthenticationError")
    equal("a full queue", kind(lambda: client.completions.create(model=name, prompt="x", n=100, max_tokens=1)), "RateLimitError")
    try:
        for _ in client.completions.create(model=name, prompt="x", max_tokens=8000, stream=True,
                                           extra_body={"timeout": 0.3, "ignore_eos": True}):
            pass
        ok("a failure within a stream is an exception", False)
    except openai.APIError as e:
        ok("a failure within a stream is an exception", "timeout" in str(e), e)
    equal("and then", client.completions.create(model=name, prompt="one", max_tokens=1).usage.completion_tokens, 1)


with scratch_folder() as folder:
    model, _ = chat_model(folder)
    with Server(model, "--threads", 1, "--api-key", "key", "--max-queue", 50, "--max-num-seqs", 8, "--served-model-name", "counter", wait=False) as server:
        server.key = "key"
        server.wait_ready()
        name = "counter"
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="key", max_retries=0, timeout=60)
        main(models, chats, completions, errors)
