#ifndef REFRAIN_SERVER_THREAD_STACKS_H_
#define REFRAIN_SERVER_THREAD_STACKS_H_

namespace refrain::server {

// Gives threads that are started from now on, gRPC's included, stacks of 2 MiB where the limit of
// this process (ulimit -s) says less: kernels keep half a megabyte there, in frames that step over
// the guard page of a small stack. Stacks of more stay as they are; the calling thread's does, too.
// Once, before the first thread.
void EnlargeThreadStacks();

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_THREAD_STACKS_H_
