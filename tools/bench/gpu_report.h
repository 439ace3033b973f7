#ifndef REFRAIN_TOOLS_BENCH_GPU_REPORT_H_
#define REFRAIN_TOOLS_BENCH_GPU_REPORT_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace refrain::bench {

// A number with the digits behind its point that a reader wants, or a text.
struct GpuCell {
  GpuCell(std::string text) : value(std::move(text)) {}    // NOLINT: cells are lists
  GpuCell(const char* text) : value(std::string(text)) {}  // NOLINT
  GpuCell(double number, int digits) : value(number), digits(digits) {}
  GpuCell(int number) : value(static_cast<double>(number)), digits(0) {}  // NOLINT

  std::string Text() const;

  std::variant<std::string, double> value;
  int digits = 0;
};

inline GpuCell Milliseconds(double seconds) { return {seconds * 1e3, 3}; }

struct GpuTable {
  std::string name;   // key in JSON
  std::string about;  // a sentence or two above the table
  std::vector<std::string> columns;
  std::vector<std::vector<GpuCell>> rows;  // as many cells as columns
};

// What a run measured: tables for people and the same as JSON. Values keep their full precision in
// JSON.
struct GpuReport {
  std::string command, date, card;
  std::vector<std::pair<std::string, double>>
      measured;  // of the machine: name with its unit, value
  std::vector<GpuTable> tables;
  // What a table shows to be wrong: a result too far from exact, a bound that was missed. Either
  // fails the run.
  std::vector<std::string> errors, misses;

  std::string Markdown() const;
  std::string Json() const;
};

// Replaces a regular file: whoever reads it meanwhile, or after the process was killed, finds the
// old text or the new one, whole, and the old one stays where the new one cannot be written. All
// else, as /dev/stdout or a symbolic link (to a file, too), is written in place. False, with a
// message on stderr, where it cannot be written.
bool WriteTextFile(const std::string& path, const std::string& text);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_GPU_REPORT_H_
