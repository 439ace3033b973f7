#include "tools/bench/attention_report.h"

#include <cstdio>
#include <fstream>

#include "nlohmann/json.hpp"

namespace refrain::bench {
namespace {

nlohmann::ordered_json ToJson(const Measurement& m) {
  return {{"suite", m.suite},
          {"model", m.model},
          {"kv", m.kv},
          {"batch", m.batch},
          {"prompt_tokens", m.prompt_tokens},
          {"shared_tokens", m.shared_tokens},
          {"completion_tokens", m.completion_tokens},
          {"method", m.method},
          {"median_us", m.median_s * 1e6},
          {"least_us", m.least_s * 1e6},
          {"most_us", m.most_s * 1e6},
          {"ideal_us", m.ideal_s * 1e6},
          {"tokens_per_s", m.tokens_per_s},
          {"by_two_phase", m.by_two_phase},
          {"by_two_phase_allowed", m.by_two_phase_allowed},
          {"goals", m.goals}};
}

bool Written(std::ofstream& file, const std::string& path) {
  file.close();
  if (!file) std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return static_cast<bool>(file);
}

}  // namespace

bool AttentionReport::WriteJson(const std::string& path) const {
  nlohmann::ordered_json all = {{"command", command}, {"processor", processor},
                                {"level", level},     {"threads", threads},
                                {"date", date},       {"read_gb_per_s", read_bytes_per_s * 1e-9}};
  for (const auto& [name, rate] : flops_per_s) all["gflop_per_s"][name] = rate * 1e-9;
  for (const Measurement& m : measurements) all["measurements"].push_back(ToJson(m));
  std::ofstream file(path);
  file << all.dump(1) << '\n';
  return Written(file, path);
}

bool AttentionReport::WriteCsv(const std::string& path) const {
  std::ofstream file(path);
  bool first = true;
  for (const Measurement& m : measurements) {
    const nlohmann::ordered_json row = ToJson(m);
    const auto line = [&](const auto& text_of) {
      bool begun = false;
      for (const auto& [key, value] : row.items()) {
        file << (begun ? "," : "") << text_of(key, value);
        begun = true;
      }
      file << '\n';
    };
    if (first) line([](const std::string& key, const auto&) { return key; });
    first = false;
    line([](const std::string&, const auto& value) { return value.dump(); });  // quotes texts
  }
  return Written(file, path);
}

}  // namespace refrain::bench
