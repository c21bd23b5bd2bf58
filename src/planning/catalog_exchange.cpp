#include "planning/catalog_exchange.hpp"

#include "comm/agree.hpp"
#include "planning/layout_steps.hpp"

namespace cairn::checkpoint {

plan::PackedCatalog exchange_catalog(comm::Communicator& communicator, const DescribedState& state) {
  comm::Mail mail;
  comm::agree(communicator, "describe the state",
              [&] { mail = describe_to_homes(state, communicator.rank(), communicator.size()); });
  mail = communicator.all_to_all(std::move(mail));
  std::vector<plan::CatalogTensor> homed;
  base::Bytes mine;
  comm::agree(communicator, "merge the catalog", [&] {
    homed = merge_described(mail);
    mine = sample_names(homed, communicator.rank(), communicator.size());
  });
  mail = communicator.all_gather(mine);
  comm::agree(communicator, "spread the catalog", [&] { mail = spread_in_order(homed, mail); });
  mail = communicator.all_to_all(std::move(mail));
  comm::agree(communicator, "order the catalog", [&] { mine = pack_stretch(mail); });
  mail = communicator.all_gather(mine);
  plan::PackedCatalog catalog;
  comm::agree(communicator, "collect the catalog", [&] { catalog = plan::PackedCatalog(mail); });
  return catalog;
}

std::vector<std::uint64_t> exchange_header_sizes(comm::Communicator& communicator, const plan::HfLayout& files) {
  base::Bytes mine;
  comm::agree(communicator, "measure the headers",
              [&] { mine = header_sizes_of_share(files, communicator.rank(), communicator.size()); });
  const comm::Mail all = communicator.all_gather(mine);
  std::vector<std::uint64_t> sizes;
  comm::agree(communicator, "collect the sizes of headers", [&] { sizes = join_header_sizes(files, all); });
  return sizes;
}

std::map<std::string, std::string> exchange_indexes(comm::Communicator& communicator, const plan::HfLayout& files) {
  base::Bytes mine;
  comm::agree(communicator, "make the indexes",
              [&] { mine = indexes_of_share(files, communicator.rank(), communicator.size()); });
  comm::Mail shares = communicator.gather(mine, 0);
  mine = {};
  std::map<std::string, std::string> indexes;
  comm::agree_on_root(communicator, "collect the indexes", 0, [&] { indexes = join_indexes(std::move(shares)); });
  return indexes;
}

std::vector<plan::MemoryPart> exchange_claims(comm::Communicator& communicator, const plan::PackedCatalog& catalog,
                                              const NumberedBoxes& mine) {
  comm::Mail mail;
  comm::agree(communicator, "claim the state", [&] { mail = claim_boxes(mine, communicator.size()); });
  mail = communicator.all_to_all(std::move(mail));
  comm::agree(communicator, "check that the state is whole",
              [&] { mail = settle_claims(catalog, mail, communicator.rank()); });
  mail = communicator.all_to_all(std::move(mail));
  std::vector<plan::MemoryPart> parts;
  comm::agree(communicator, "collect the parts to provide", [&] { parts = collect_parts(mail, mine); });
  return parts;
}

}  // namespace cairn::checkpoint
