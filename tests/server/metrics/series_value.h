#ifndef REFRAIN_TESTS_SERVER_METRICS_SERIES_VALUE_H_
#define REFRAIN_TESTS_SERVER_METRICS_SERIES_VALUE_H_

#include <sstream>
#include <string>

namespace refrain::testing {

// The value of the line of a metrics page that begins with `series`, as text; "" when there is
// none.
inline std::string SeriesValue(const std::string& page, const std::string& series) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(series + " ")) return line.substr(series.size() + 1);
  }
  return "";
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_METRICS_SERIES_VALUE_H_
