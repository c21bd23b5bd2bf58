// The report is one self-contained page whose tags close, with names escaped; plots keep inside their frame.
#include "bench/html_report.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "bench/svg_plot.hpp"
#include "sample_record.hpp"

namespace cairn::bench {
namespace {

// Name of the first tag that is closed wrongly; empty when all match. tests/cli parses a report as XML besides.
std::string first_unbalanced(const std::string& page) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z0-9]+)([^<>]*?)(/?)>");
  for (std::sregex_iterator at(page.begin(), page.end(), tag), end; at != end; ++at) {
    if ((*at)[4].length() != 0) continue;
    if ((*at)[1].length() == 0) {
      open.push_back((*at)[2]);
    } else if (open.empty() || open.back() != (*at)[2]) {
      return (*at)[2];
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

TEST(Report, TagsCloseAndNamesAreEscaped) {
  const std::string page = html_report(sample_record());
  EXPECT_EQ(first_unbalanced(page), "");
  EXPECT_NE(page.find("node&lt;1&gt;"), std::string::npos);
  EXPECT_NE(page.find("a &amp; b"), std::string::npos);
  EXPECT_EQ(page.find("node<1>"), std::string::npos);
}

TEST(Report, NeedsNothingFromElsewhere) {
  std::string page = html_report(sample_record());
  for (const char* word : {"<script", "src=", "href=", "@import", "url("}) {
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  }
}

TEST(Report, HasThePlotsAndTheSweep) {
  const std::string page = html_report(sample_record());
  EXPECT_NE(page.find("Size sweep"), std::string::npos);
  Record one = sample_record();
  one.runs.pop_back();
  const std::string single = html_report(one);
  EXPECT_EQ(single.find("Size sweep"), std::string::npos);
  EXPECT_EQ(first_unbalanced(single), "");
  const std::regex svg("<svg xmlns");
  EXPECT_EQ(std::distance(std::sregex_iterator(single.begin(), single.end(), svg), {}), 3);  // phases, save, load
}

TEST(Report, OverlappingPhasesStayInsideTheFrame) {
  // Parts add up to 9, the whole is 5.
  const std::string plot = stacked_bars({{"save", {{"exchange", 4, 0}, {"write", 5, 1}}, 5}}, "s");
  const std::regex rectangle("x=\"([0-9.]+)\" y=\"[0-9.]+\" width=\"([0-9.]+)\"");
  int seen = 0;
  for (std::sregex_iterator at(plot.begin(), plot.end(), rectangle), end; at != end; ++at, ++seen) {
    EXPECT_LE(std::stod((*at)[1]) + std::stod((*at)[2]), 760.0);
  }
  EXPECT_EQ(seen, 2);
}

TEST(Report, PlotsOfNothingAreFrames) {
  EXPECT_EQ(first_unbalanced(stacked_bars({}, "s")), "");
  EXPECT_EQ(first_unbalanced(line_plot({}, {})), "");
  EXPECT_EQ(line_plot({{"one", 0, {{5, 0}}, Stroke::kSolid}}, {}).find("nan"), std::string::npos);
}

TEST(Report, XmlTextIsTextOfXmlWhateverComes) {
  EXPECT_EQ(xml_text("a\x01<b>\"&\n"), "a&lt;b&gt;&quot;&amp;");
  EXPECT_EQ(xml_text("M\xc3\xbcller"), "M\xc3\xbcller");
  EXPECT_EQ(xml_text("M\xfcller"), "M?ller");
}

}  // namespace
}  // namespace cairn::bench
