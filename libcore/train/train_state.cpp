#include "libcore/train/train_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rw {
namespace {

// Of the piece's rows, those that fall to this one of the replicas.
ShardPiece replica_share(const ShardPiece& piece, const Comm& replica) {
  const int64_t from = piece.rows.rows * replica.rank() / replica.size(),
                to = piece.rows.rows * (replica.rank() + 1) / replica.size();
  const int64_t row = piece.rows.rows == 0 ? 0 : piece.n / piece.rows.rows;
  ShardPiece share = piece;
  share.rows = {.first = piece.rows.first + from, .rows = to - from};
  share.offset += from * row;
  share.shard_at += from * row;
  share.n = (to - from) * row;
  return share;
}

// Calls add(param, piece) for what this rank is to write.
template <typename Add>
void for_each_share(TrainStep& step, Add add) {
  for (const ShardPiece& piece : step.shards().own_pieces())
    if (const LocalParam& p = step.layout().params()[piece.param]; p.owned)
      add(p, replica_share(piece, *step.mesh().replica));
}

TensorPiece tensor_piece(const std::string& prefix, const LocalParam& p, const ShardPiece& piece, const float* data) {
  return {.name = prefix + p.name, .dtype = DType::f32, .shape = p.shape, .box = rows_box(p, piece.rows), .data = data};
}

}  // namespace

Json state_json(const TrainState& s) {
  Json json = {{"step", s.step},       {"samples", s.samples},           {"tokens", s.tokens},
               {"updates", s.updates}, {"skipped", s.skipped},           {"seq_len", s.seq_len},
               {"seed", s.seed},       {"global_batch", s.global_batch}, {"data_fingerprint", s.data_fingerprint}};
  if (!s.loss_scale.empty()) json["loss_scale"] = Json::parse(s.loss_scale);
  if (!s.guard.empty()) json["guard"] = Json::parse(s.guard);
  return json;
}

TrainState parse_state(const Json& json, const std::string& where) {
  TrainState s;
  s.step = json_int(json, "step", where);
  s.samples = json_int(json, "samples", where);
  s.tokens = json_int(json, "tokens", where);
  s.updates = json_int(json, "updates", where);
  s.skipped = json_int(json, "skipped", where);
  s.seq_len = json_int(json, "seq_len", where);
  s.seed = json_int(json, "seed", where);
  s.global_batch = json_int(json, "global_batch", where);
  s.data_fingerprint = json_string(json, "data_fingerprint", where);
  if (const auto scale = json.find("loss_scale"); scale != json.end()) s.loss_scale = scale->dump();
  if (const auto guard = json.find("guard"); guard != json.end()) s.guard = guard->dump();
  return s;
}

std::vector<TensorPiece> checkpoint_pieces(TrainStep& step) {
  std::vector<TensorPiece> pieces;
  for_each_share(step, [&](const LocalParam& p, const ShardPiece& piece) {
    pieces.push_back(tensor_piece("", p, piece, step.weights().at(piece)));
    pieces.push_back(tensor_piece("adam.m/", p, piece, step.optimizer().m() + piece.shard_at));
    pieces.push_back(tensor_piece("adam.v/", p, piece, step.optimizer().v() + piece.shard_at));
  });
  return pieces;
}

std::vector<TensorPiece> gradient_pieces(TrainStep& step) {
  std::vector<TensorPiece> pieces;
  for_each_share(step, [&](const LocalParam& p, const ShardPiece& piece) {
    pieces.push_back(tensor_piece("", p, piece, step.grads().at(piece)));
  });
  return pieces;
}

namespace {

RowSpan all_rows(const LocalParam& p) { return {.first = 0, .rows = p.box.extent[0]}; }

// Calls visit(name, rows of a parameter, where they go) for each box that is read.
template <typename Visit>
void for_each_box(TrainStep& step, Load what, Visit visit) {
  const auto& params = step.layout().params();
  const auto pieces = [&](const char* prefix, auto&& place) {
    for (const ShardPiece& piece : step.shards().own_pieces()) {
      const LocalParam& p = params[piece.param];
      visit(prefix + p.name, p, piece.rows, place(piece));
    }
  };
  if (step.weights().sharded()) {
    pieces("", [&](const ShardPiece& piece) { return step.weights().at(piece); });
  } else {
    for (const LocalParam& p : params) visit(p.name, p, all_rows(p), step.weights().masters() + p.slice.offset);
  }
  if (what == Load::weights_and_moments) {
    pieces("adam.m/", [&](const ShardPiece& piece) { return step.optimizer().m() + piece.shard_at; });
    pieces("adam.v/", [&](const ShardPiece& piece) { return step.optimizer().v() + piece.shard_at; });
  }
}

}  // namespace

void load_params(TrainStep& step, const TensorSource& source, Load what) {
  for_each_box(step, what, [&](const std::string& name, const LocalParam& p, RowSpan rows, float* to) {
    step.host().fill(to, rows.rows, p.row(), [&](float* host, RowSpan some) {
      source.read(name, rows_box(p, {.first = rows.first + some.first, .rows = some.rows}), DType::f32, host);
    });
  });
  step.weights().loaded();
}

std::vector<std::pair<std::string, Box>> boxes_to_load(TrainStep& step) {
  std::vector<std::pair<std::string, Box>> boxes;
  for_each_box(step, Load::weights_and_moments,
               [&](const std::string& name, const LocalParam& p, RowSpan rows, float*) {
                 boxes.emplace_back(name, rows_box(p, rows));
               });
  return boxes;
}

void init_weights(TrainStep& step, uint64_t seed) {
  for_each_box(step, Load::weights, [&](const std::string&, const LocalParam& p, RowSpan rows, float* to) {
    step.host().fill(to, rows.rows, p.row(), [&](float* host, RowSpan some) {
      init_rows(p, {.first = rows.first + some.first, .rows = some.rows}, host, seed);
    });
  });
  step.weights().loaded();
}

}  // namespace rw
