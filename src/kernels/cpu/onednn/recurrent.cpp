// Recurrent layers: the products of many steps' inputs by oneDNN, and then step by step the product of the hidden state
// and the cell. oneDNN's own layers take a batch of one at half of the speed that the caches have.
#include "kernels/simd/recurrent.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>

#include "base/parallel.h"
#include "base/run_guard.h"
#include "base/thread_limit.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/onednn/affine.h"
#include "kernels/cpu/onednn/operators.h"

namespace onnxtorch {
namespace onednn {
namespace {

using Cell = Recurrent::Cell;

struct Direction {
  using Tensors = std::span<const at::Tensor>;

  Direction(Tensors weights, Tensors biases, const std::string& name)
      : input(weights[0], biases[0], "input" + name), hidden(weights[1], biases[1], "hidden" + name) {
    if (weights.size() == 3) of_reset.emplace(weights[2], biases[2], "of_reset" + name);
  }

  std::vector<const Affine*> products() const {
    std::vector<const Affine*> all{&input, &hidden};
    if (of_reset) all.push_back(&*of_reset);
    return all;
  }

  Affine input, hidden;
  std::optional<Affine> of_reset;  // with the hidden state after the reset gate
};

// One direction of some of the batch's sequences: what a thread takes, or all threads together.
struct Share {
  int64_t direction, first, count;
  RunRows hidden, of_reset;
};

bool all_past_end(const SequenceRows& rows) {
  return rows.within && std::none_of(rows.within, rows.within + rows.count, std::identity());
}

class PackedLayer final : public PackedRecurrent {
 public:
  explicit PackedLayer(const Recurrent& layer)
      : cell_(layer.cell), has_biases_(layer.has_biases), peepholes_(layer.peepholes) {
    const size_t products = cell_ == Cell::GruOfResetState ? 3 : 2, stride = has_biases_ ? 2 * products : products;
    const std::vector<at::Tensor> none(products);
    const Direction::Tensors parameters(layer.parameters);
    for (size_t first = 0; first < parameters.size(); first += stride) {
      const Direction::Tensors biases = has_biases_ ? parameters.subspan(first + products, products) : none;
      directions_.push_back(
          std::make_unique<Direction>(parameters.subspan(first, products), biases, std::to_string(first / stride)));
    }
  }

  std::vector<at::Tensor> run(const at::Tensor& given, at::TensorList states,
                              const std::optional<at::Tensor>& given_within) const override {
    if (!fits(given, states, given_within)) return by_aten(given, states, given_within);
    const at::Tensor x = given.contiguous(), within = given_within ? given_within->contiguous() : at::Tensor();
    std::vector<at::Tensor> results{at::empty({x.size(0), x.size(1), directions() * hidden()}, x.options())};
    for (const at::Tensor& state : states) results.push_back(state.clone(at::MemoryFormat::Contiguous));
    const at::Tensor room = at::empty({room_for(x.size(0), x.size(1))}, x.options());
    const auto memory = [](const at::Tensor& t) { return t.mutable_data_ptr<float>(); };
    take_steps(work(x.size(0), x.size(1), x.const_data_ptr<float>(),
                    within.defined() ? within.const_data_ptr<bool>() : nullptr, memory(results[0]), memory(results[1]),
                    cell_ == Cell::Lstm ? memory(results[2]) : nullptr, memory(room)));
    return results;
  }

  std::unique_ptr<PlannedCall> planned(const at::Tensor& x, at::TensorList states,
                                       const std::optional<at::Tensor>& within) const override {
    const auto lies_well = [](const at::Tensor& t) { return t.is_contiguous(); };
    if (!fits(x, states, within) || !lies_well(x) || !std::ranges::all_of(states, lies_well) ||
        (within && !lies_well(*within)))
      return {};
    const auto self = c10::intrusive_ptr<PackedLayer>::reclaim_copy(const_cast<PackedLayer*>(this));
    return std::make_unique<PlannedLayer>(self, x.size(0), x.size(1), within.has_value());
  }

  void expect(at::IntArrayRef sizes) const override {
    if (sizes.size() != 3 || sizes[0] == 0 || sizes[1] == 0 || sizes[2] != features()) return;
    const ThreadLimit limit(threads_for(sizes[0], sizes[1]));
    shares_of(sizes[1]);
    for (const auto& direction : directions_) {
      for (const int64_t steps : {steps_at_once(sizes[0], sizes[1]), sizes[0] % steps_at_once(sizes[0], sizes[1])}) {
        if (steps > 0) direction->input.for_rows(steps * sizes[1]);
      }
    }
  }

  std::vector<SavedWeights> saved() const override {
    std::vector<SavedWeights> all;
    for (const auto& direction : directions_) {
      for (const Affine* product : direction->products())
        for (SavedWeights& one : product->weight().saved()) all.push_back(std::move(one));
    }
    return all;
  }

  void take(std::vector<SavedWeights> saved) const override {
    for (const auto& direction : directions_) {
      for (const Affine* product : direction->products()) product->weight().take(saved);
    }
  }

 private:
  int64_t directions() const { return std::ssize(directions_); }
  int64_t features() const { return directions_[0]->input.in(); }
  int64_t hidden() const { return directions_[0]->hidden.in(); }
  int64_t gates() const { return directions_[0]->input.out(); }

  // Gives the memory for a row of one step, in floats: the gates, and before the hidden gate the state after the reset
  // gate.
  int64_t row_room() const { return cell_ == Cell::GruOfResetState ? gates() + hidden() : gates(); }

  // Tells whether the layer takes the tensors; others ATen runs or refuses.
  bool fits(const at::Tensor& x, at::TensorList states, const std::optional<at::Tensor>& within) const {
    if (!is_plain(x) || x.dim() != 3 || x.size(2) != features()) return false;
    if (within &&
        (within->scalar_type() != c10::kBool || within->sizes() != at::IntArrayRef({x.size(0), x.size(1), 1})))
      return false;
    const std::array sizes{directions(), x.size(1), hidden()};
    return std::ranges::all_of(states,
                               [&](const at::Tensor& s) { return is_plain(s) && s.sizes() == at::IntArrayRef(sizes); });
  }

  // Gives the number of threads as ThreadLimit takes it: what one thread does in a few microseconds is done before
  // another has begun.
  int threads_for(int64_t time, int64_t batch) const {
    constexpr int64_t kLeastWork = 1 << 18;
    return directions() * time * batch * gates() * (features() + hidden()) < kLeastWork ? 1 : 0;
  }

  // Gives the number of steps whose inputs are multiplied at once: enough rows for a fast product, and few enough to
  // stay in a cache.
  static int64_t steps_at_once(int64_t time, int64_t batch) {
    constexpr int64_t kRows = 256;
    return std::clamp<int64_t>(kRows / batch, 1, time);
  }

  // Tells whether all threads go through one share after another: they take parts of a weight that is larger than a
  // thread's cache.
  bool in_turn() const {
    constexpr int64_t kLargestOfOneThread = 1 << 19;
    return gates() * hidden() > kLargestOfOneThread;
  }

  // Gives what so many rows of one direction cost after the product of the inputs, as parallel_for counts.
  int64_t cost_of_rows(int64_t rows) const {
    constexpr int64_t kProductsOfCost = 8, kGate = 16;
    return rows * gates() * (hidden() / kProductsOfCost + kGate);
  }

  std::vector<Share> shares_of(int64_t batch) const {
    const int64_t parts = in_turn() ? 1 : std::clamp<int64_t>(at::get_num_threads() / directions(), 1, batch);
    const ThreadLimit limit(!in_turn() && parts * directions() > 1 ? 1 : 0);
    std::vector<Share> shares;
    for (int64_t direction = 0; direction < directions(); ++direction) {
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t first = part * batch / parts, count = (part + 1) * batch / parts - first;
        const Direction& own = *directions_[direction];
        shares.push_back({direction, first, count, own.hidden.for_rows(count),
                          own.of_reset ? own.of_reset->for_rows(count) : RunRows()});
      }
    }
    return shares;
  }

  // One run: its tensors' memory, and room for the gates of some steps.
  struct Work {
    int64_t time, batch, at_once;
    const float* x;
    const bool* within;               // [time, batch]; null where no sequence ends before
    float *y, *h, *c;                 // the states, which are the initial ones at first; c of an LSTM alone
    float *from_input, *from_hidden;  // gates [directions, at_once, batch, gates], and of one step [.., room]
  };

  // Gives the memory for the gates of a run, in floats.
  int64_t room_for(int64_t time, int64_t batch) const {
    return directions() * batch * (steps_at_once(time, batch) * gates() + row_room());
  }

  Work work(int64_t time, int64_t batch, const float* x, const bool* within, float* y, float* h, float* c,
            float* room) const {
    const int64_t at_once = steps_at_once(time, batch);
    return {time, batch, at_once, x, within, y, h, c, room, room + directions() * at_once * batch * gates()};
  }

  // Steps of one direction, in the order of x.
  struct Steps {
    int64_t first, count;
  };

  // Gives the steps that a direction takes after `begin` others; the second goes from the last one to the first.
  static Steps steps_after(const Work& work, int64_t begin, int64_t direction) {
    const int64_t count = std::min(work.at_once, work.time - begin);
    return {direction == 0 ? begin : work.time - begin - count, count};
  }

  void take_steps(const Work& work) const {
    const int64_t time = work.time, batch = work.batch, at_once = work.at_once;
    const ThreadLimit limit(threads_for(time, batch));
    const std::vector<Share> shares = shares_of(batch);
    const RunWatch watch;
    for (int64_t begin = 0; begin < time; begin += at_once) {
      watch.check();
      for (int64_t direction = 0; direction < directions(); ++direction) multiply_inputs(work, begin, direction);
      const auto take = [&](const Share& share) { take_share(work, begin, share); };
      if (in_turn()) {
        std::ranges::for_each(shares, take);
      } else {
        parallel_for(
            std::ssize(shares), cost_of_rows(at_once * batch) * directions() / std::ssize(shares),
            [&](int64_t first, int64_t end) { std::for_each(shares.begin() + first, shares.begin() + end, take); });
      }
    }
  }

  // A layer for inputs of known sizes.
  class PlannedLayer : public PlannedCall {
   public:
    PlannedLayer(c10::intrusive_ptr<PackedLayer> layer, int64_t time, int64_t batch, bool has_within)
        : layer_(std::move(layer)),
          time_(time),
          batch_(batch),
          states_(layer_->cell_ == Cell::Lstm ? 2 : 1),
          has_within_(has_within) {}

    size_t work_bytes() const override { return layer_->room_for(time_, batch_) * sizeof(float); }

    // The last states take the memory of the initial ones.
    std::vector<Over> over() const override {
      std::vector<Over> pairs;
      for (size_t i = 0; i < states_; ++i) pairs.push_back({.result = result() + 1 + i, .argument = 1 + i});
      return pairs;
    }

    void run(std::span<const TensorPlace> places) const override {
      const int64_t size = layer_->directions() * batch_ * layer_->hidden();
      std::array<float*, 2> states{};
      for (size_t i = 0; i < states_; ++i) {
        const auto* const initial = places[1 + i].as<float>();
        states[i] = places[result() + 1 + i].as<float>();
        if (states[i] != initial) std::copy_n(initial, size, states[i]);
      }
      layer_->take_steps(layer_->work(time_, batch_, places[0].as<float>(),
                                      has_within_ ? places[1 + states_].as<bool>() : nullptr,
                                      places[result()].as<float>(), states[0], states[1], places.back().as<float>()));
    }

   private:
    size_t result() const { return 1 + states_ + (has_within_ ? 1 : 0); }  // the first of them, among the places

    const c10::intrusive_ptr<PackedLayer> layer_;
    const int64_t time_, batch_;
    const size_t states_;
    const bool has_within_;
  };

  void multiply_inputs(const Work& work, int64_t begin, int64_t direction) const {
    const auto [first, count] = steps_after(work, begin, direction);
    if (all_past_end(rows_of(work, first * work.batch, count * work.batch))) return;
    const Affine& input = directions_[direction]->input;
    input.for_rows(count * work.batch)(work.x + first * work.batch * features(),
                                       work.from_input + direction * work.at_once * work.batch * gates());
  }

  void take_share(const Work& work, int64_t begin, const Share& share) const {
    const auto [first, count] = steps_after(work, begin, share.direction);
    const int64_t row = share.direction * work.batch + share.first, width = directions() * hidden();
    float *const h = work.h + row * hidden(), *const c = work.c ? work.c + row * hidden() : nullptr;
    float* const from_hidden = work.from_hidden + row * row_room();
    const float* const peepholes = peepholes_.defined() ? peepholes_.const_data_ptr<float>() : nullptr;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t step = share.direction == 0 ? i : count - 1 - i;
      const int64_t input_row = (share.direction * work.at_once + step) * work.batch + share.first;
      const float* const from_input = work.from_input + input_row * gates();
      const int64_t y_row = (first + step) * work.batch + share.first;
      const SequenceRows rows = rows_of(work, y_row, share.count);
      if (!all_past_end(rows)) take_step(share, {from_input, from_hidden, peepholes}, h, c, rows);
      float* const y = work.y + y_row * width + share.direction * hidden();
      for (int64_t r = 0; r < share.count; ++r) {
        if (rows.past_end(r))
          std::fill_n(y + r * width, hidden(), 0.0F);
        else
          std::copy_n(h + r * hidden(), hidden(), y + r * width);
      }
    }
  }

  SequenceRows rows_of(const Work& work, int64_t first, int64_t count) const {
    return {count, hidden(), work.within ? work.within + first : nullptr};
  }

  void take_step(const Share& share, const Gates& from, float* h, float* c, const SequenceRows& rows) const {
    const auto& kernels = for_this_cpu<RecurrentKernels>();
    share.hidden(h, from.hidden);
    switch (cell_) {
      case Cell::Lstm:
        return kernels.lstm_step(from, h, c, rows);
      case Cell::Gru:
        return kernels.gru_step(from, h, rows);
      case Cell::GruOfResetState: {
        float *const kept = from.hidden + 2 * rows.count * rows.size, *const candidate = kept + rows.count * rows.size;
        kernels.reset_step(from, h, kept, rows);
        share.of_reset(kept, candidate);
        return kernels.update_step(from, candidate, h, rows);
      }
      case Cell::Tanh:
        return kernels.tanh_step(from, h, rows);
      case Cell::Relu:
        return kernels.relu_step(from, h, rows);
    }
  }

  // Computes the next states of one direction, from what a step's input gives for the gates.
  std::vector<at::Tensor> next_states(const at::Tensor& gates, const std::vector<at::Tensor>& states) const {
    const Direction& direction = *directions_[0];
    const at::Tensor& h = states[0];
    const auto input = gates.split(hidden(), 1), from_h = product(direction.hidden, h).split(hidden(), 1);
    const auto sigmoid = [&](size_t gate) { return at::sigmoid(input[gate] + from_h[gate]); };
    const auto updated = [&](const at::Tensor& z, const at::Tensor& fresh) {
      return (1 - z) * at::tanh(fresh) + z * h;
    };
    switch (cell_) {
      case Cell::Lstm: {
        const auto seeing = [&](size_t gate, int64_t peephole, const at::Tensor& c) {
          return peepholes_.defined() ? at::sigmoid(input[gate] + from_h[gate] + peepholes_[peephole] * c)
                                      : sigmoid(gate);
        };
        const at::Tensor taken = seeing(0, 0, states[1]), kept = seeing(1, 1, states[1]);
        const at::Tensor c = kept * states[1] + taken * at::tanh(input[2] + from_h[2]);
        return {seeing(3, 2, c) * at::tanh(c), c};
      }
      case Cell::Gru:
        return {updated(sigmoid(1), input[2] + sigmoid(0) * from_h[2])};
      case Cell::GruOfResetState:
        return {updated(sigmoid(0), input[2] + product(*direction.of_reset, sigmoid(1) * h))};
      case Cell::Tanh:
        return {at::tanh(input[0] + from_h[0])};
      case Cell::Relu:
        return {at::relu(input[0] + from_h[0])};
    }
    return {};
  }

  static at::Tensor product(const Affine& of, const at::Tensor& rows) {
    return at::linear(rows, of.weight().plain(), of.bias().defined() ? std::optional(of.bias()) : std::nullopt);
  }

  // Runs a layer of one direction step by step, by ATen.
  std::vector<at::Tensor> by_steps(const at::Tensor& x, at::TensorList initial,
                                   const std::optional<at::Tensor>& within) const {
    std::vector<at::Tensor> states;
    for (const at::Tensor& state : initial) states.push_back(state[0]);
    std::vector<at::Tensor> over_time{states[0]};
    const at::Tensor gates = product(directions_[0]->input, x);
    const RunWatch watch;
    for (int64_t step = 0; step < x.size(0); ++step) {
      watch.check();
      const std::vector<at::Tensor> next = next_states(gates[step], states);
      for (size_t i = 0; i < states.size(); ++i)
        states[i] = within ? at::where((*within)[step], next[i], states[i]) : next[i];
      over_time.push_back(states[0]);
    }
    const at::Tensor y = at::stack(over_time).slice(0, 1);
    std::vector<at::Tensor> results{within ? at::where(*within, y, 0) : y};
    for (const at::Tensor& state : states) results.push_back(state.unsqueeze(0));
    return results;
  }

  std::vector<at::Tensor> by_aten(const at::Tensor& x, at::TensorList states,
                                  const std::optional<at::Tensor>& within) const {
    if (within || peepholes_.defined() || cell_ == Cell::GruOfResetState) return by_steps(x, states, within);
    std::vector<at::Tensor> parameters;
    for (const auto& direction : directions_) {
      for (const Affine* product : direction->products()) parameters.push_back(product->weight().plain());
      if (has_biases_) parameters.insert(parameters.end(), {direction->input.bias(), direction->hidden.bias()});
    }
    const auto run = [&](const auto& function, const auto& initial) {
      return function(x, initial, parameters, has_biases_, /*num_layers=*/1, /*dropout=*/0.0, /*train=*/false,
                      /*bidirectional=*/directions() == 2, /*batch_first=*/false);
    };
    const auto run_plain = [&](const auto& function) {
      auto [y, h] = run(function, states[0]);
      return std::vector{y, h};
    };
    switch (cell_) {
      case Cell::Lstm: {
        auto [y, h, c] = run([](const auto&... args) { return at::lstm(args...); }, states);
        return {y, h, c};
      }
      case Cell::Gru:
        return run_plain([](const auto&... args) { return at::gru(args...); });
      case Cell::GruOfResetState:
        break;
      case Cell::Tanh:
        return run_plain([](const auto&... args) { return at::rnn_tanh(args...); });
      case Cell::Relu:
        return run_plain([](const auto&... args) { return at::rnn_relu(args...); });
    }
    return {};
  }

  const Cell cell_;
  const bool has_biases_;
  const at::Tensor peepholes_;
  std::vector<std::unique_ptr<const Direction>> directions_;
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(const Recurrent& layer) { return c10::make_intrusive<onednn::PackedLayer>(layer); }

}  // namespace onnxtorch
