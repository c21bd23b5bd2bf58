// The report is one self-contained page with closed tags and escaped names; plots stay inside their frame.
#include "bench/record_document.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/svg_plot.hpp"
#include "sample_record.hpp"

namespace cairn::bench {
namespace {

// Positions of `part` in `text`.
std::vector<std::size_t> places(const std::string& text, const std::string& part) {
  std::vector<std::size_t> found;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) found.push_back(at);
  return found;
}

// The number in the next attribute `name` after `from`.
double number_of(const std::string& text, std::size_t from, const std::string& name) {
  return std::stod(text.substr(text.find(name + "=\"", from) + name.size() + 2));
}

// The first tag closed wrongly, or the last one left open; empty if all match. tests/cli parses a report as XML.
std::string first_unbalanced(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    std::string tag = page.substr(at + 1, page.find('>', at) - at - 1);
    if (tag.starts_with('!') || tag.ends_with('/')) continue;
    const bool closes = tag.starts_with('/');
    if (closes) tag.erase(0, 1);
    tag.resize(std::min(tag.size(), tag.find_first_of(" \n")));
    if (!closes) {
      open.push_back(tag);
    } else if (open.empty() || open.back() != tag) {
      return tag;
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

TEST(Report, BeginsWithTheResultInWordsAndFitsAPage) {
  Record record = sample_record();
  record.machine.job = "Slurm job 12";
  const std::string page = html_report(record);
  const std::string start = page.substr(page.find("<h1>"), page.find("<h2>") - page.find("<h1>"));
  EXPECT_NE(start.find("saved 2.00 GiB at <b>"), std::string::npos) << start;
  EXPECT_NE(start.find("</b> of the raw speed of the same ranks."), std::string::npos);
  EXPECT_NE(start.find("Slurm job 12"), std::string::npos);
  EXPECT_NE(page.find("@media print"), std::string::npos);
  // Only short words stay on one line: cells of tables must be able to shrink to the width of the page.
  EXPECT_EQ(page.find("th, td { white-space: nowrap"), std::string::npos);
  EXPECT_EQ(first_unbalanced(page), "");
}

TEST(Report, HasTheNotesOfTheLog) {
  Record record = sample_record();
  EXPECT_EQ(html_report(record).find("whatever the size"), std::string::npos);
  for (Sample& sample : record.runs[0].save.samples) sample.phases.push_back({"commit", 100, 100, 0});
  const std::string note = size_note(record.runs[0].save);
  ASSERT_FALSE(note.empty());
  EXPECT_NE(html_report(record).find(xml_text(note)), std::string::npos);
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
  EXPECT_EQ(places(single, "<svg xmlns").size(), 3U);  // phases, save, load
}

TEST(Report, OverlappingPhasesStayInsideTheFrame) {
  // The parts add up to 9, but the whole is 5.
  const std::string plot = stacked_bars({{"save", {{"exchange", 4, 0}, {"write", 5, 1}}, 5}}, "s");
  int seen = 0;
  for (const std::size_t rectangle : places(plot, "<rect")) {
    if (plot.find(" y=\"", rectangle) > plot.find('>', rectangle)) continue;
    EXPECT_LE(number_of(plot, rectangle, " x") + number_of(plot, rectangle, " width"), 760.0);
    ++seen;
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
