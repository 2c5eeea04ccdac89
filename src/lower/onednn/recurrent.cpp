// Recurrent layers by oneDNN.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

#include "kernels/arrange.h"
#include "lower/onednn/laid_weight.h"
#include "lower/onednn/packed.h"

namespace onnxtorch {
namespace onednn {
namespace {

using Tag = dnnl::memory::format_tag;
using Cell = Recurrent::Cell;
constexpr auto kFloat = dnnl::memory::data_type::f32;
constexpr auto kInference = dnnl::prop_kind::forward_inference;

int64_t gates_in(Cell cell) { return cell == Cell::Lstm ? 4 : cell == Cell::Gru ? 3 : 1; }

// Of a parameter, [gates * hidden, …], in oneDNN's order of ATen's or the other way round: a GRU has its first two
// exchanged.
std::vector<at::Tensor> gates_of(const at::Tensor& parameter, Cell cell) {
  std::vector<at::Tensor> gates = parameter.chunk(gates_in(cell));
  if (cell == Cell::Gru) std::swap(gates[0], gates[1]);
  return gates;
}

// [1 layer, directions, features, gates, hidden] of each direction's [gates * hidden, features].
at::Tensor weight_of(const Recurrent& layer, size_t which) {
  const size_t stride = layer.has_biases ? 4 : 2;
  const at::Tensor& first = layer.parameters[which];
  const int64_t directions = layer.bidirectional ? 2 : 1, gates = gates_in(layer.cell);
  const at::Tensor weight = at::empty({1, directions, first.size(1), gates, first.size(0) / gates}, first.options());
  for (int64_t direction = 0; direction < directions; ++direction) {
    const auto parts = gates_of(layer.parameters[which + static_cast<size_t>(direction) * stride], layer.cell);
    for (int64_t gate = 0; gate < gates; ++gate)
      copy_into(weight[0][direction].select(1, gate), parts[static_cast<size_t>(gate)].t());
  }
  return weight;
}

// [1 layer, directions, gates, hidden]. A GRU's hidden state has a bias of its own for the new gate, behind the others.
at::Tensor bias_of(const Recurrent& layer) {
  std::vector<at::Tensor> directions;
  for (size_t i = 0; i < layer.parameters.size(); i += layer.has_biases ? 4 : 2) {
    const at::Tensor zeros = at::zeros({layer.parameters[i].size(0)}, at::kFloat);
    const auto gates = [&](size_t of) {
      return at::stack(gates_of(layer.has_biases ? layer.parameters[i + of] : zeros, layer.cell));
    };
    const at::Tensor input = gates(2), hidden = gates(3);
    directions.push_back(layer.cell != Cell::Gru ? input + hidden
                                                 : at::cat({input.slice(0, 0, 2) + hidden.slice(0, 0, 2),
                                                            input.slice(0, 2), hidden.slice(0, 2)}));
  }
  return at::stack(directions).unsqueeze(0).contiguous();
}

// One direction's parameter of ATen's, from [features, gates, hidden].
at::Tensor parameter_of(const at::Tensor& direction, Cell cell) {
  return at::cat(gates_of(direction.permute({1, 2, 0}).flatten(0, 1), cell));
}

// The layer with its biases only.
Recurrent without_weights(Recurrent layer) {
  const size_t stride = layer.has_biases ? 4 : 2;
  for (size_t i = 0; i < layer.parameters.size(); ++i) {
    if (i % stride < 2) layer.parameters[i].reset();
  }
  return layer;
}

struct PreparedLayer {
  dnnl::primitive primitive;
  dnnl::memory::desc x, state, bias, y, scratchpad;
  Laid input_weight, hidden_weight;
  std::shared_ptr<Frames> frames = std::make_shared<Frames>();
};

class PackedLayer final : public PackedRecurrent {
 public:
  explicit PackedLayer(Recurrent layer)
      : input_weight_(weight_of(layer, 0), "weights_layer"),
        hidden_weight_(weight_of(layer, 1), "weights_iter"),
        bias_(bias_of(layer)),
        layer_(without_weights(std::move(layer))) {}

  std::vector<at::Tensor> run(const at::Tensor& given, at::TensorList states) const override {
    if (!fits(given, states)) return by_aten(given, states);
    const at::Tensor x = given.contiguous();
    const auto p = prepared(x.size(0), x.size(1));
    Call call(p->frames);
    call.with(DNNL_ARG_SRC_LAYER, p->x, x)
        .with(DNNL_ARG_WEIGHTS_LAYER, p->input_weight.memory)
        .with(DNNL_ARG_WEIGHTS_ITER, p->hidden_weight.memory)
        .with(DNNL_ARG_BIAS, p->bias, bias_);
    std::vector<at::Tensor> results{at::empty({x.size(0), x.size(1), directions() * hidden()}, x.options())};
    call.with(DNNL_ARG_DST_LAYER, p->y, results[0]);
    constexpr std::array kFrom{DNNL_ARG_SRC_ITER, DNNL_ARG_SRC_ITER_C}, kTo{DNNL_ARG_DST_ITER, DNNL_ARG_DST_ITER_C};
    std::vector<at::Tensor> lent;
    for (size_t i = 0; i < states.size(); ++i) {
      call.with(kFrom.at(i), p->state, lent.emplace_back(states[i].contiguous()));
      results.push_back(at::empty(states[i].sizes(), x.options()));
      call.with(kTo.at(i), p->state, results.back());
    }
    call.run(p->primitive, p->scratchpad);
    return results;
  }

  void expect(at::IntArrayRef sizes) const override {
    if (sizes.size() == 3 && sizes[0] > 0 && sizes[1] > 0 && sizes[2] == features()) prepared(sizes[0], sizes[1]);
  }

  std::vector<SavedWeights> saved() const override {
    std::vector<SavedWeights> all = input_weight_.saved();
    for (SavedWeights& one : hidden_weight_.saved()) all.push_back(std::move(one));
    return all;
  }

  void take(std::vector<SavedWeights> saved) const override {
    input_weight_.take(saved);
    hidden_weight_.take(saved);
  }

 private:
  int64_t directions() const { return input_weight_.form().size(1); }
  int64_t features() const { return input_weight_.form().size(2); }
  int64_t hidden() const { return input_weight_.form().size(4); }

  // What does not, ATen runs or refuses.
  bool fits(const at::Tensor& x, at::TensorList states) const {
    if (!is_plain(x) || x.dim() != 3 || x.size(2) != features()) return false;
    const std::array sizes{directions(), x.size(1), hidden()};
    return std::ranges::all_of(states,
                               [&](const at::Tensor& s) { return is_plain(s) && s.sizes() == at::IntArrayRef(sizes); });
  }

  std::shared_ptr<const PreparedLayer> prepared(int64_t time, int64_t batch) const {
    // A primitive divides its work when it is made.
    return recent_.get({time, batch, at::get_num_threads()}, [&] { return prepare(time, batch); });
  }

  PreparedLayer prepare(int64_t time, int64_t batch) const {
    const dnnl::memory::desc x({time, batch, features()}, kFloat, Tag::tnc),
        state({1, directions(), batch, hidden()}, kFloat, Tag::ldnc), bias(bias_.sizes().vec(), kFloat, Tag::ldgo),
        y({time, batch, directions() * hidden()}, kFloat, Tag::tnc);
    const auto description = describe(x, state, bias, y);
    const auto laid = [](const LaidWeight& weight, const dnnl::memory::desc& wanted) {
      return weight.get(borrowed({weight.form().sizes().vec(), kFloat, Tag::ldigo}, weight.form()), wanted);
    };
    return {dnnl::primitive(description.get()),
            x,
            state,
            bias,
            y,
            description.scratchpad_desc(),
            laid(input_weight_, description.weights_layer_desc()),
            laid(hidden_weight_, description.weights_iter_desc())};
  }

  dnnl::rnn_primitive_desc_base describe(const dnnl::memory::desc& x, const dnnl::memory::desc& state,
                                         const dnnl::memory::desc& bias, const dnnl::memory::desc& y) const {
    const dnnl::memory::desc input(input_weight_.form().sizes().vec(), kFloat, Tag::any),
        hidden(hidden_weight_.form().sizes().vec(), kFloat, Tag::any);
    const auto direction = layer_.bidirectional ? dnnl::rnn_direction::bidirectional_concat
                                                : dnnl::rnn_direction::unidirectional_left2right;
    const dnnl::primitive_attr attr = attributes({}, y);
    switch (layer_.cell) {
      case Cell::Lstm:
        return dnnl::lstm_forward::primitive_desc(engine(), kInference, direction, x, state, state, input, hidden, bias,
                                                  y, state, state, attr);
      case Cell::Gru:
        return dnnl::lbr_gru_forward::primitive_desc(engine(), kInference, direction, x, state, input, hidden, bias, y,
                                                     state, attr);
      default:
        return dnnl::vanilla_rnn_forward::primitive_desc(engine(), kInference, dnnl::algorithm::eltwise_tanh, direction,
                                                         x, state, input, hidden, bias, y, state, attr);
    }
  }

  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all = layer_.parameters;
    const at::Tensor input = input_weight_.plain(), hidden = hidden_weight_.plain();
    const size_t stride = layer_.has_biases ? 4 : 2;
    for (int64_t i = 0; i < directions(); ++i) {
      const size_t first = static_cast<size_t>(i) * stride;
      all[first] = parameter_of(input[0][i], layer_.cell);
      all[first + 1] = parameter_of(hidden[0][i], layer_.cell);
    }
    return all;
  }

  std::vector<at::Tensor> by_aten(const at::Tensor& x, at::TensorList states) const {
    const auto run = [&](const auto& function, const auto& initial) {
      return function(x, initial, parameters(), layer_.has_biases, /*num_layers=*/1, /*dropout=*/0.0,
                      /*train=*/false, layer_.bidirectional, /*batch_first=*/false);
    };
    if (layer_.cell == Cell::Lstm) {
      auto [y, h, c] = run([](const auto&... args) { return at::lstm(args...); }, states);
      return {y, h, c};
    }
    auto [y, h] = layer_.cell == Cell::Gru ? run([](const auto&... args) { return at::gru(args...); }, states[0])
                                           : run([](const auto&... args) { return at::rnn_tanh(args...); }, states[0]);
    return {y, h};
  }

  const LaidWeight input_weight_, hidden_weight_;
  const at::Tensor bias_;
  const Recurrent layer_;  // without its weights
  mutable Recent<std::array<int64_t, 3>, PreparedLayer> recent_{64};
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(Recurrent layer) {
  return c10::make_intrusive<onednn::PackedLayer>(std::move(layer));
}

}  // namespace onnxtorch
