"""JSON Schemas made up at random, of the keywords that grammars know."""

import random

NAMES = ["a", "b", "ab", "kind", "ä", "x/y"]
PATTERNS = ["^[a-z]*$", "b", "^a.?$", "^(?!a)[a-z]+$", "\\d$", "^(a|bc){1,3}$"]
FORMATS = ["date", "ipv4", "uuid", "email", "password"]
CONSTANTS = [None, True, False, 0, 1, 1.5, "a", "b", "ab", [], [1], {}, {"a": 1}]


class RandomSchemas:
    """Each has a few definitions, which all its schemas may refer to, and so to themselves."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def next(self):
        names = ["d", "e"]
        schema = self._schema(3)
        if not isinstance(schema, dict):
            return schema
        return {**schema, "$defs": {name: self._schema(2) for name in names}}

    def _chance(self, of: int) -> bool:
        return self._random.randrange(of) == 0

    def _some(self, items: list, most: int = 3) -> list:
        return self._random.sample(items, self._random.randint(1, min(most, len(items))))

    def _schema(self, depth: int):
        if self._chance(12):
            return self._random.choice([True, False, {}, {}])
        schema = self._typed(depth) if not self._chance(4) else {}
        if depth > 0:
            for keyword in ("anyOf", "oneOf", "allOf"):
                if self._chance(8):
                    schema[keyword] = [self._schema(depth - 1)
                                       for _ in range(self._random.randint(1, 3))]
        if self._chance(8):
            schema["$ref"] = self._random.choice(["#/$defs/d", "#/$defs/e", "#"])
        if self._chance(15):
            schema["not"] = False
        return schema

    def _typed(self, depth: int) -> dict:
        makers = [self._number, self._string, self._constant, self._plain]
        if depth > 0:
            makers += [self._array, self._object, self._object]
        schema = {}
        for maker in self._some(makers, 1 if self._chance(2) else 2):
            schema.update(maker(depth))
        return schema

    def _plain(self, _depth: int) -> dict:
        names = ["null", "boolean", "integer", "number", "string", "array", "object"]
        return {"type": self._random.choice(names) if self._chance(2) else self._some(names)}

    def _constant(self, _depth: int) -> dict:
        if self._chance(2):
            return {"const": self._random.choice(CONSTANTS)}
        return {"enum": self._some(CONSTANTS, 6)}

    def _number(self, _depth: int) -> dict:
        schema = {"type": self._random.choice(["integer", "number"])} if self._chance(2) else {}
        for keyword in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
            if self._chance(3):
                low = keyword.endswith("inimum")
                value = self._random.randint(-30, 5) if low else self._random.randint(0, 300)
                schema[keyword] = value if self._chance(2) else value + 0.25
        if self._chance(5):
            schema["multipleOf"] = self._random.choice([1, 2, 7, 10, 0.5, 0.25])
        return schema

    def _string(self, _depth: int) -> dict:
        schema = {"type": "string"} if self._chance(2) else {}
        if self._chance(2):
            schema["minLength"] = self._random.randint(0, 4)
        if self._chance(2):
            schema["maxLength"] = self._random.randint(2, 9)
        if self._chance(3):
            schema["pattern"] = self._random.choice(PATTERNS)
        elif self._chance(4):
            schema["format"] = self._random.choice(FORMATS)
        return schema

    def _array(self, depth: int) -> dict:
        schema = {"type": "array"} if self._chance(2) else {}
        if self._chance(2):
            schema["items"] = self._schema(depth - 1)
        if self._chance(3):
            schema["prefixItems"] = [self._schema(depth - 1)
                                     for _ in range(self._random.randint(1, 3))]
        if self._chance(3):
            schema["minItems"] = self._random.randint(0, 3)
        if self._chance(3):
            schema["maxItems"] = self._random.randint(1, 5)
        if self._chance(12):
            schema["unevaluatedItems"] = False
        return schema

    def _object(self, depth: int) -> dict:
        schema = {"type": "object"} if self._chance(2) else {}
        if not self._chance(4):
            schema["properties"] = {name: self._schema(depth - 1) for name in self._some(NAMES, 4)}
        if self._chance(2):
            schema["required"] = self._some(NAMES, 2)
        if self._chance(3):
            schema["additionalProperties"] = self._schema(depth - 1)
        if self._chance(8):
            schema["propertyNames"] = self._random.choice(
                [{"enum": self._some(NAMES)}, {"maxLength": 2}, {"type": "string"}, {"pattern": "^a"}])
        if self._chance(12):
            schema["patternProperties"] = {self._random.choice(PATTERNS): self._schema(depth - 1)}
        if self._chance(12):
            schema["unevaluatedProperties"] = False
        if self._chance(8):
            schema["minProperties"] = self._random.randint(0, 2)
        if self._chance(8):
            schema["maxProperties"] = self._random.randint(1, 4)
        return schema
