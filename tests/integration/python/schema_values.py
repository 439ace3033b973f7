"""Values at the edges of what a JSON Schema of ours allows."""

# Of each pattern that our schemas have, texts that match.
MATCHING = {"^(0|[1-9][0-9]*)$": ["0", "57"], "[^ ]": ["x", " y "],
            "^[1-9][0-9]{0,5}[smhd]$": ["1s", "999999d"]}
ANYTHING = [None, True, 0, 1.5, "text", [], ["text"], {}, {"a": 1}]
MOST_ITEMS = 1024  # of a list that has more only the length is another


class SchemaValues:
    def __init__(self, document: dict):
        self._document = document

    def of(self, schema: dict) -> list:
        """Some that it allows; all of an enumeration, both ends of a range, every alternative."""
        if "$ref" in schema:
            found = self._document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[int(part)] if isinstance(found, list) else found[part]
            return self.of(found)
        if "const" in schema:
            return [schema["const"]]
        if "enum" in schema:
            return schema["enum"]
        for several in ("anyOf", "oneOf"):
            if several in schema:
                rest = {name: value for name, value in schema.items() if name != several}
                return [value for one in schema[several] for value in self.of(_both(rest, one))]
        types = schema.get("type")
        if types is None:
            types = "object" if "properties" in schema or "required" in schema else None
        if types is None:
            return ANYTHING
        return [value for name in ([types] if isinstance(types, str) else types)
                for value in getattr(self, f"_{name}")(schema)]

    def _null(self, _schema) -> list:
        return [None]

    def _boolean(self, _schema) -> list:
        return [True, False]

    def _integer(self, schema) -> list:
        most = schema.get("maximum", schema.get("exclusiveMaximum", 2**31) - 1)
        return [int(schema.get("minimum", 0)), int(most)]

    def _number(self, schema) -> list:
        least, most = schema["minimum"], schema["maximum"]
        return [least, most, (least + most) / 2]

    def _string(self, schema) -> list:
        if "pattern" in schema:
            texts = MATCHING[schema["pattern"]]
        else:
            texts = ["", "text", "ä" * min(schema.get("maxLength", 5), 70000)]
        return [text for text in texts
                if schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))]

    def _array(self, schema) -> list:
        least, most = schema.get("minItems", 0), schema.get("maxItems", 2)
        values = [[]] if least == 0 else []
        if most > 0:
            items = self.of(schema.get("items", {}))
            values += [[item] for item in items]
            values.append((items * MOST_ITEMS)[:min(most, MOST_ITEMS)])
        return values

    def _object(self, schema) -> list:
        """With each of its members alone, beside those that it must have."""
        properties = schema.get("properties", {})
        least = {name: self.of(properties.get(name, {}))[0] for name in schema.get("required", [])}
        values = [least]
        values += [{**least, name: value} for name, one in properties.items()
                   for value in self.of(one)]
        more = schema.get("additionalProperties", True)
        if isinstance(more, dict):
            names = self.of({"type": "string", **schema.get("propertyNames", {})})
            values += [{name: value} for name in names for value in self.of(more)]
        return values


def _both(schema: dict, other: dict) -> dict:
    """What both say."""
    both = {**schema, **other}
    for name in ("properties", "required"):
        if name in schema and name in other:
            both[name] = ({**schema[name], **other[name]} if name == "properties"
                          else [*schema[name], *other[name]])
    return both
