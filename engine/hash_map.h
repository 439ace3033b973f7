#ifndef REFRAIN_ENGINE_HASH_MAP_H_
#define REFRAIN_ENGINE_HASH_MAP_H_

#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

#include "absl/hash/hash.h"

namespace refrain::engine {

// For what is rendered, tokenized and held to a form, where a request that finds no memory ends
// alone (EncodePool): where one of these cannot grow, std::bad_alloc comes out and it is what it
// was before. Abseil's flat_hash_map (20220623, Debian's) has its new capacity by then and its old
// slots: its destructor frees what never was. And for the scheduler, whose many small maps take
// less time so.
//
// As fast as abseil's, and with its rules: growth moves the elements, and ends iterators and
// pointers. clear() keeps all of the memory, and takes as long as that is large. Hashed by a secret
// of the process, as keys come from clients, or by a hash that is given.
template <class Key, class Value, class Hash = absl::Hash<Key>>
using HashMap = boost::unordered_flat_map<Key, Value, Hash>;

template <class Key, class Hash = absl::Hash<Key>>
using HashSet = boost::unordered_flat_set<Key, Hash>;

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_HASH_MAP_H_
