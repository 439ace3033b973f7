#ifndef REFRAIN_SERVER_METRICS_PROCESS_METRICS_H_
#define REFRAIN_SERVER_METRICS_PROCESS_METRICS_H_

namespace refrain::server::metrics {

class FamilyList;

// What the kernel tells about this process, under the names that Prometheus clients use. What it
// does not tell is left out. Any thread.
void DescribeProcess(FamilyList* families);

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_PROCESS_METRICS_H_
