// Prints the device that -ot rules give to each tensor name, as both engines look it up: std::regex_search, first
// match wins. Input, one item a line: "rule" TAB pattern TAB device, "name" TAB tensor, "end" (answers, starts again).
#include <iostream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

int main() {
    std::vector<std::pair<std::regex, std::string>> rules;
    std::string line;
    bool refused = false;
    while (std::getline(std::cin, line)) {
        const size_t tab = line.find('\t');
        const std::string kind = line.substr(0, tab), rest = tab == std::string::npos ? "" : line.substr(tab + 1);
        if (kind == "rule") {
            const size_t at = rest.rfind('\t');
            try {
                rules.emplace_back(std::regex(rest.substr(0, at)), rest.substr(at + 1));
            } catch (const std::regex_error &) { refused = true; }
        } else if (kind == "name" && !refused) {
            for (const auto & [pattern, device] : rules) {
                if (std::regex_search(rest, pattern)) { std::cout << rest << '\t' << device << '\n'; break; }
            }
        } else if (kind == "end") {
            std::cout << (refused ? "refused" : "end") << std::endl;
            rules.clear();
            refused = false;
        }
    }
}
