#ifndef REFRAIN_SERVER_TIME_SLICE_H_
#define REFRAIN_SERVER_TIME_SLICE_H_

namespace refrain::server {

// For threads that wait for most of their time and then do tens of microseconds of work that
// somebody waits for: hands tokens to sockets, answers a probe. Asks the kernel to give the calling
// thread its processor time in slices of 0.1 ms. From Linux 6.12 on a thread that wakes up takes
// the processor at once from those with longer slices (the computing threads, other programs)
// instead of after up to milliseconds; its share of the processor stays the same, so that it takes
// nothing from the model. Needs no privilege. Elsewhere, or where it is forbidden, it does nothing:
// all works as before, with a longer tail.
void AskForShortTimeSlice();

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_TIME_SLICE_H_
