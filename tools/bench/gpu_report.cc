#include "tools/bench/gpu_report.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace refrain::bench {

using nlohmann::ordered_json;

std::string GpuCell::Text() const {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const double number = std::get<double>(value);
  if (!std::isfinite(number)) return "-";
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.*f", digits, number);
  return buffer;
}

std::string GpuReport::Markdown() const {
  std::string text = card + ", " + date + "\n\n`" + command + "`\n";
  for (const auto& [name, value] : measured) {
    text += "\n- " + name + ": " + GpuCell(value, 1).Text();
  }
  text += "\n";
  for (const GpuTable& table : tables) {
    text += "\n### " + table.name + "\n\n" + table.about + "\n\n|";
    for (const std::string& column : table.columns) text += " " + column + " |";
    text += "\n|";
    for (size_t i = 0; i < table.columns.size(); ++i) text += "---|";
    for (const auto& row : table.rows) {
      text += "\n|";
      for (const GpuCell& cell : row) text += " " + cell.Text() + " |";
    }
    text += "\n";
  }
  for (const std::string& error : errors) text += "\nWRONG: " + error + "\n";
  if (!misses.empty()) text += "\nNot reached:\n";
  for (const std::string& miss : misses) text += "- " + miss + "\n";
  return text;
}

std::string GpuReport::Json() const {
  ordered_json json = {{"command", command}, {"date", date}, {"card", card}};
  for (const auto& [name, value] : measured) json["measured"][name] = value;
  for (const GpuTable& table : tables) {
    ordered_json rows = ordered_json::array();
    for (const auto& row : table.rows) {
      ordered_json object;
      for (size_t i = 0; i < row.size(); ++i) {
        if (const auto* text = std::get_if<std::string>(&row[i].value)) {
          object[table.columns[i]] = *text;
        } else {
          object[table.columns[i]] = std::get<double>(row[i].value);  // NaN becomes null
        }
      }
      rows.push_back(std::move(object));
    }
    json["tables"][table.name] = std::move(rows);
  }
  json["errors"] = errors;
  json["misses"] = misses;
  return json.dump(2) + "\n";
}

bool WriteTextFile(const std::string& path, const std::string& text) {
  // Only files are replaced: /dev/stdout is none.
  std::error_code error;
  const auto type = std::filesystem::symlink_status(path, error).type();
  const bool replaced =
      type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
  const std::string written = replaced ? path + ".new" : path;
  std::ofstream file(written, std::ios::binary);
  file << text;
  file.close();
  error.clear();
  if (file && replaced) std::filesystem::rename(written, path, error);
  if (file && !error) return true;
  std::fprintf(stderr, "%s cannot be written\n", path.c_str());
  return false;
}

}  // namespace refrain::bench
