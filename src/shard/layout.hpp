// A layout: how a mesh of ranks shards the tensors of a training state.
//
// Short form: comma-separated `axis=degree` and flags, e.g. "tp=4,pp=2,dp=2,ep=1,zero=1,order=tp-cp-ep-dp-pp",
// "fsdp=3", "fsdp=2,tp=2", "tp=4,pp=2,uneven". JSON form: src/shard/README.md. A layout is a value and independent of
// models; ShardMap (shard_map.hpp) binds a layout to a model's tensors.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace cairn::shard {

struct LayoutRules;  // parsed form (layout_rules.hpp), only for this folder

class Layout {
 public:
  /// Throws Error(kUsage) naming the wrong word and the allowed words.
  static Layout parse(std::string_view short_form);
  /// The JSON form. Throws Error(kUsage) naming the key.
  static Layout from_json(std::string_view text);
  /// `text` is a short form, or JSON text if it begins with '{'.
  static Layout from_text(std::string_view text) { return text.starts_with('{') ? from_json(text) : parse(text); }

  [[nodiscard]] int world_size() const;
  /// The string from which from_text() makes the same layout.
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] const LayoutRules& rules() const { return *rules_; }

 private:
  std::shared_ptr<const LayoutRules> rules_;
};

}  // namespace cairn::shard
