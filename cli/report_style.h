// How a run's report looks, and what it does under the pointer.
#pragma once
#include <string_view>

namespace penstock::cli {

inline constexpr std::string_view page_style = R"(
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0;background:#f4f6f9;color:#1a2330;font:15px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','Vazirmatn','Noto Naskh Arabic',sans-serif}
header,main,footer{max-width:1120px;margin:0 auto;padding:0 20px}
header{padding-top:34px;padding-bottom:14px}
h1{font-size:28px;line-height:1.25;margin:2px 0 4px;overflow-wrap:anywhere}
h2{font-size:16px;margin:0 0 2px}
.kind{margin:0;color:#2f6fd0;font-weight:600;font-size:13px}
.note{margin:0;color:#5b6675;font-size:13px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(118px,1fr));gap:12px;margin-bottom:16px}
.tile,section{background:#fff;border:1px solid #e1e6ec;border-radius:10px}
.tile{padding:12px 14px}
.tile b{display:block;font-size:21px;line-height:1.3;font-variant-numeric:tabular-nums;white-space:nowrap}
.tile span{color:#5b6675;font-size:12.5px}
.tile.is-good b{color:#158a63}
.tile.is-bad b{color:#c93434}
section{padding:16px 18px;min-width:0}
.findings{margin-bottom:16px}
.findings ul{margin:6px 0 0;padding-inline-start:20px}
.findings li{margin:3px 0;overflow-wrap:anywhere}
.quiet{margin-top:16px;color:#5b6675;font-size:13.5px}
.quiet h2{font-size:14px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:16px}
.cards svg{display:block;width:100%;max-width:860px;height:auto;margin-top:10px}
.narrow{display:none}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:8px 0 0;font-size:13px;color:#5b6675}
.item{display:inline-flex;align-items:center;gap:7px}
.key{width:12px;height:12px;border-radius:3px;display:inline-block}
.scroll{overflow-x:auto;margin-top:10px}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th,td{text-align:start;padding:6px 14px 6px 0;border-bottom:1px solid #e6e9ee;vertical-align:top}
[dir=rtl] th,[dir=rtl] td{padding:6px 0 6px 14px}
th{color:#5b6675;font-weight:600;white-space:nowrap}
td:last-child{overflow-wrap:anywhere;min-width:120px}
td:first-child,td:nth-child(2){white-space:nowrap}
pre{margin:4px 0 6px;padding:7px 11px;background:#f0f3f7;border-radius:7px;font:12.5px/1.5 ui-monospace,Consolas,monospace;overflow-x:auto;text-align:left}
footer{padding-top:18px;padding-bottom:40px;color:#5b6675;font-size:12.5px}
#tip{position:fixed;z-index:2;pointer-events:none;white-space:pre;background:#1a2330;color:#fff;padding:7px 10px;border-radius:7px;font-size:12.5px;line-height:1.45;direction:ltr}
@media (max-width:560px){header,main,footer{padding-left:12px;padding-right:12px}header{padding-top:20px}h1{font-size:23px}
section{padding:14px 12px}.tiles{grid-template-columns:repeat(2,1fr);gap:8px}.wide{display:none}.narrow{display:block}}
@media print{.cards{display:block}section{break-inside:avoid;margin-bottom:12px}}
)";

inline constexpr std::string_view dark_style = R"(
body{background:#0f141b;color:#e6ebf1}
.tile,section{background:#171e27;border-color:#263140}
.note,.tile span,.legend,.quiet,th,footer{color:#9aa7b5}
.kind{color:#5c9dff}
.tile.is-good b{color:#3fc796}
.tile.is-bad b{color:#ff7b72}
th,td{border-color:#2a3441}
pre{background:#202a36}
#tip{background:#e6ebf1;color:#171e27}
)";

inline constexpr std::string_view page_script = R"(
const tip = document.getElementById('tip');
for (const svg of document.querySelectorAll('svg[data-tip]')) {
  const places = JSON.parse(svg.dataset.tip), width = svg.viewBox.baseVal.width;
  const hide = () => { tip.hidden = true; };
  svg.addEventListener('pointermove', e => {
    const box = svg.getBoundingClientRect(), x = (e.clientX - box.left) / box.width * width;
    const near = places.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
    tip.textContent = near[1];
    tip.hidden = false;
    const at = e.clientX + 14;
    tip.style.left = Math.max(4, Math.min(at, document.documentElement.clientWidth - tip.offsetWidth - 4)) + 'px';
    tip.style.top = Math.max(4, e.clientY - tip.offsetHeight - 12) + 'px';
  });
  svg.addEventListener('pointerleave', hide);
  window.addEventListener('scroll', hide, {passive: true});
}
)";

}  // namespace penstock::cli
