// The program `cairn_pages FOLDER`: writes man pages and shell completions into the folder, where there are none yet.
// The build starts it; it does not start MPI.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>

#include "base/version.hpp"
#include "command.hpp"
#include "os/file.hpp"
#include "pages.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: cairn_pages FOLDER\n");
    return 2;
  }
  try {
    const std::filesystem::path folder = argv[1];
    cairn::app::CommandLine line("cairn", cairn::app::kDescription);
    cairn::app::set_up(line, {});
    const cairn::app::CommandText program = line.text();
    std::vector<cairn::app::Page> pages = man_pages(program, cairn::base::tool_version());
    for (cairn::app::Page& page : completions(program)) pages.push_back(std::move(page));
    for (const cairn::app::Page& page : pages) {
      cairn::os::make_directory((folder / page.path).parent_path());
      cairn::os::write_new_file(folder / page.path, std::as_bytes(std::span(page.text)));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cairn_pages: %s\n", error.what());
    return 1;
  }
  return 0;
}
