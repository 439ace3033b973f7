#include "server/debug/cache_page.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/concat.h"
#include "server/json.h"
#include "server/status_mapping.h"

namespace refrain::server::debug {
namespace {

constexpr int32_t kMostNodes = 100'000;
constexpr int32_t kMostDepth = 1'000'000;

absl::Status ReadNumber(std::string_view name, std::string_view text, int32_t most,
                        int32_t* value) {
  int32_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || number < 1 ||
      number > most) {
    return InvalidField(name, Concat("'", name, "' must be an integer of at least 1 and at most ",
                                     most, ", not \"", text.substr(0, 32), "\""));
  }
  *value = number;
  return absl::OkStatus();
}

std::string_view Name(kvcache::Residency residency) {
  switch (residency) {
    case kvcache::Residency::kDevice:
      break;
  }
  return "device";
}

template <typename Id>
void AppendOptional(const std::optional<Id>& id, std::string* out) {
  if (id.has_value()) {
    ConcatTo(out, static_cast<int64_t>(*id));
  } else {
    out->append("null");
  }
}

void AppendTotals(const engine::CacheView& view, std::string* out) {
  const auto& stats = view.stats;
  ConcatTo(out, "{\"chunks\":", stats.total_chunks, ",\"free_chunks\":", stats.free_chunks,
           ",\"used_chunks\":", stats.used_chunks, ",\"cached_chunks\":", stats.cached_chunks,
           ",\"chunk_tokens\":", stats.chunk_tokens, ",\"running_sequences\":", stats.sequences,
           ",\"logical_tokens\":", stats.logical_tokens,
           ",\"copied_chunks\":", stats.copied_chunks_total,
           ",\"merged_chunks\":", stats.merged_chunks_total,
           ",\"evicted_chunks\":", stats.evicted_chunks_total, ",\"nodes\":", view.total_nodes,
           ",\"nodes_shown\":", view.nodes.size(), ",\"namespaces\":", view.total_namespaces, "}");
}

void AppendEngine(const engine::EngineStats& stats, std::string* out) {
  ConcatTo(out, "{\"steps\":", stats.steps_total, ",\"preemptions\":", stats.preemptions_total,
           ",\"prompt_tokens\":", stats.prompt_tokens_total,
           ",\"cached_prompt_tokens\":", stats.cached_prompt_tokens_total,
           ",\"computed_prompt_tokens\":", stats.computed_prompt_tokens_total,
           ",\"generated_tokens\":", stats.generated_tokens_total,
           ",\"held_sequences\":", stats.held_sequences,
           ",\"turn_seconds\":", Json(stats.turn_seconds_total).dump(),
           ",\"scheduling_seconds\":", Json(stats.scheduling_seconds_total).dump(), "}");
}

void AppendNode(const engine::CacheViewNode& node, std::string* out) {
  ConcatTo(out, "{\"id\":", static_cast<int32_t>(node.id), ",\"parent\":");
  AppendOptional(node.parent, out);
  ConcatTo(out, ",\"namespace\":", node.name_space, ",\"chunk\":", static_cast<int32_t>(node.chunk),
           ",\"depth\":", node.depth, ",\"tokens\":", node.num_tokens,
           ",\"children\":", node.num_children, ",\"sharers\":", node.sharers,
           ",\"hits\":", node.hits, ",\"age_requests\":", node.age_requests, ",\"residency\":\"",
           Name(node.residency), "\",\"pinned\":", node.pinned ? "true" : "false", ",\"writer\":");
  AppendOptional(node.writer, out);
  out->append("}");
}

}  // namespace

absl::StatusOr<engine::CacheViewLimits> ParseCacheQuery(std::string_view query) {
  engine::CacheViewLimits limits;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const std::string_view name = pair.substr(0, pair.find('='));
    const std::string_view text = pair.substr(std::min(pair.size(), name.size() + 1));
    absl::Status status;
    if (name == "limit") {
      status = ReadNumber(name, text, kMostNodes, &limits.max_nodes);
    } else if (name == "depth") {
      status = ReadNumber(name, text, kMostDepth, &limits.max_depth);
    } else {
      const std::string_view shown = name.substr(0, 32);
      status = InvalidField(shown, Concat("'", shown, "' is unknown; there are limit and depth"));
    }
    if (!status.ok()) return status;
  }
  return limits;
}

std::string CachePage(const engine::CacheView& view, const engine::EngineStats& engine) {
  std::string page = "{\"totals\":";
  AppendTotals(view, &page);
  page += ",\"engine\":";
  AppendEngine(engine, &page);
  page += ",\"namespaces\":[";
  for (size_t i = 0; i < view.namespaces.size(); ++i) {
    const engine::CacheViewNamespace& one = view.namespaces[i];
    ConcatTo(&page, i == 0 ? "" : ",", "{\"tenant\":");
    AppendJsonString(one.tenant, &page);
    ConcatTo(&page, ",\"salted\":", one.salted ? "true" : "false",
             ",\"first_chunks\":", one.first_chunks, "}");
  }
  page += "],\"nodes\":[";
  for (size_t i = 0; i < view.nodes.size(); ++i) {
    if (i > 0) page += ",";
    AppendNode(view.nodes[i], &page);
  }
  page += "]}";
  return page;
}

}  // namespace refrain::server::debug
