"""The right words, greedily, before any speed: a wrong answer can be had at any speed."""

import load
import servers

ALONE = (("The capital of France is", "Paris"), ("1, 2, 3, 4, 5, 6,", "7, 8, 9"))
# Who lives where, told three times: a prompt that all users share, of about 440 tokens, so that
# each answer comes from what is computed, or cached, once for all of them.
HOMES = {name: city for name, city in (pair.split(": ") for pair in """
Ada: Paris, Ben: Rome, Clara: Berlin, David: Madrid, Emma: London, Frank: Vienna, Grace: Prague,
Henry: Dublin, Irene: Oslo, Jack: Athens, Karen: Lisbon, Louis: Moscow, Maria: Tokyo, Noah: Seoul,
Olivia: Cairo, Peter: Delhi, Rachel: Sydney, Sarah: Boston, Thomas: Chicago, Victor: Dallas,
William: Denver, Anna: Miami, Brian: Toronto, Diana: Havana, Eric: Lima, Helen: Venice,
James: Munich, Laura: Geneva, Martin: Milan, Nina: Naples, Oscar: Bristol, Paul: Oxford
""".replace("\n", " ").strip().split(", "))}
SHARED = "Everyone lives in a city of their own.\n" + 3 * "".join(
    f"{name}: {city}\n" for name, city in HOMES.items())
SHARED_TOKENS = 400  # at least
USERS = 8
TOKENS_OUT = 8


def check(server: servers.Server) -> None:
    """Short prompts one at a time, then users all at once behind one long prefix, twice: when it is
    new, and when it is cached. Raises RequestError."""
    for prompt, expected in ALONE:
        answer = load.complete(server.port, server.model, [prompt], 16, whole=False)[0].text
        if expected not in answer:
            raise load.RequestError(f"{server.name} answers '{prompt}' with '{answer}', "
                                    f"without '{expected}'")
    names = list(HOMES)[:USERS]
    for _ in range(2):
        replies = load.complete(server.port, server.model, [f"{SHARED}{name}:" for name in names],
                                TOKENS_OUT)
        for name, reply in zip(names, replies):
            if not reply.text.strip().startswith(HOMES[name]):
                raise load.RequestError(f"{server.name}, one of {USERS} at once: '{name}:' is "
                                        f"answered with '{reply.text}', not '{HOMES[name]}'")
            if reply.prompt_tokens < SHARED_TOKENS:
                raise load.RequestError(f"{server.name} counts {reply.prompt_tokens} tokens in a "
                                        f"prompt of more than {SHARED_TOKENS}")
