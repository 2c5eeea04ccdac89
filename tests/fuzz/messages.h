// The messages of a model that is looked through by reflection.
#pragma once

#include <google/protobuf/message.h>

#include <vector>

namespace onnxtorch::fuzz {

// All that lie in a message, itself included.
void collect(google::protobuf::Message& message, std::vector<google::protobuf::Message*>& all);

template <typename T>
std::vector<T*> all_of(google::protobuf::Message& message) {
  std::vector<google::protobuf::Message*> all;
  collect(message, all);
  std::vector<T*> result;
  for (google::protobuf::Message* one : all)
    if (auto* const wanted = dynamic_cast<T*>(one)) result.push_back(wanted);
  return result;
}

}  // namespace onnxtorch::fuzz
