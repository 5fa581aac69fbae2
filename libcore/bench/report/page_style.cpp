// The page's style sheet: one colour a category everywhere, chosen to differ in lightness too; light, dark, print.
#include "libcore/bench/report/html.h"

namespace rw {

const char* const kPageStyle = R"css(
:root{color-scheme:light dark;--bg:#fff;--panel:#f6f7f9;--ink:#1c2128;--soft:#57606a;--line:#d5dae0;--grid:#e7eaee;
--compute:#2f6fb2;--communication:#d9822b;--bubble:#a3acb8;--data:#2a9d6f;--checkpoint:#8e54a2;
--good:#1f8a5b;--warn:#b26a00;--bad:#c4314b;
--s0:#2f6fb2;--s1:#d9822b;--s2:#2a9d6f;--s3:#8e54a2;--s4:#c4314b;--s5:#1898a8;--s6:#9a7a1f;--s7:#6b7280}
@media screen and (prefers-color-scheme:dark){:root{--bg:#12161b;--panel:#1a2027;--ink:#e6e9ed;--soft:#a3adb8;--line:#36404b;--grid:#272f38;
--compute:#5b9fe3;--communication:#f0a253;--bubble:#67727f;--data:#45c394;--checkpoint:#bd88d2;
--good:#4cc38a;--warn:#f0b354;--bad:#ff7b8f;
--s0:#5b9fe3;--s1:#f0a253;--s2:#45c394;--s3:#bd88d2;--s4:#ff7b8f;--s5:#4cc5d4;--s6:#d8b74c;--s7:#9aa4b1}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
main,header,nav{max-width:1240px;margin:0 auto;padding:0 24px}
header{padding-top:28px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:22px;line-height:1.25;margin:44px 0 4px;padding-top:20px;border-top:2px solid var(--ink);overflow-wrap:anywhere}
h3{font-size:17px;margin:32px 0 10px}
h4{font-size:14px;margin:0 0 4px;font-weight:600}
p{margin:6px 0 12px;max-width:78ch}
.sub{color:var(--soft);margin:0;overflow-wrap:anywhere}
nav{padding-top:12px;padding-bottom:4px;font-size:14px}
nav a{color:var(--compute);margin-right:14px;text-decoration:none;white-space:nowrap}
nav a:hover{text-decoration:underline}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(172px,1fr));gap:10px;margin:10px 0 14px}
.card{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.card b{display:block;font-size:22px;line-height:1.25;font-weight:650;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.card span{display:block;font-size:13px;color:var(--soft)}
.card em{display:block;font-style:normal;font-size:12.5px;color:var(--soft)}
.pair{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,500px),1fr));gap:18px;margin-bottom:18px}
figure{margin:0;padding:14px 16px 10px;border:1px solid var(--line);border-radius:8px;min-width:0;background:var(--bg)}
figcaption{font-size:13px;line-height:1.45;color:var(--soft);margin-top:6px}
svg.chart{display:block;width:100%;height:auto}
svg text{font-size:12px;fill:var(--ink);font-family:inherit}
svg .tick,svg .label{fill:var(--soft)}
.grid{stroke:var(--grid);fill:none;stroke-width:1}
.axis,.frame{stroke:var(--line);fill:none;stroke-width:1.2}
.line{fill:none;stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round}
.mark{fill:none;stroke-width:1.4;stroke-dasharray:5 3}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;margin:4px 0 2px}
.legend span{display:inline-flex;align-items:center;gap:6px;overflow-wrap:anywhere;min-width:0}
.legend i{flex:none;display:inline-block;width:12px;height:12px;border-radius:2px}
.legend i.stroke{height:3px;width:18px}
.legend i.dot{border-radius:50%;width:9px;height:9px}
.legend i.bar{width:3px;height:14px}
.legend i.wedge{width:10px;height:9px;border-radius:0;clip-path:polygon(50% 0,100% 100%,0 100%)}
.scroll{overflow-x:auto;margin:6px 0 12px}
.scroll.paper{background:#fff;border-radius:4px}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:5px 14px 5px 0;border-bottom:1px solid var(--grid);vertical-align:top}
th{color:var(--soft);font-weight:600;border-bottom-color:var(--line)}
td:first-child{white-space:nowrap}
td:last-child:not(.n){min-width:15em}
th.n,td.n{text-align:right;white-space:nowrap}
.note{border-left:3px solid var(--line);padding:2px 0 2px 12px;color:var(--soft);font-size:14px}
.finding{border-left:4px solid var(--line);padding:6px 0 6px 14px;margin:12px 0}
.finding.warning{border-color:var(--warn)}.finding.failure{border-color:var(--bad)}.finding.info{border-color:var(--compute)}
.finding b{overflow-wrap:anywhere}.finding p{margin:3px 0}
code{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:13px;background:var(--panel);padding:1px 4px;border-radius:3px;overflow-wrap:anywhere}
footer{max-width:1240px;margin:40px auto 0;padding:14px 24px 30px;color:var(--soft);font-size:13px;border-top:1px solid var(--line)}
@media (max-width:640px){main,header,nav{padding-left:14px;padding-right:14px}footer{padding-left:14px}
svg.chart text{font-size:19px}figure{padding:10px 8px 8px}.cards{grid-template-columns:repeat(2,1fr)}.card b{font-size:18px}h1{font-size:23px}}
@media print{body{font-size:11pt}figure,.card,.finding,tr{break-inside:avoid}h3,h4{break-after:avoid}nav{display:none}
main,header,footer{max-width:none;padding-left:0;padding-right:0}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
.k-ink{stroke:var(--soft)}.f-ink{fill:var(--soft)}.b-ink{background:var(--soft)}
.k-compute{stroke:var(--compute)}.f-compute{fill:var(--compute)}.b-compute{background:var(--compute)}
.k-communication{stroke:var(--communication)}.f-communication{fill:var(--communication)}.b-communication{background:var(--communication)}
.k-bubble{stroke:var(--bubble)}.f-bubble{fill:var(--bubble)}.b-bubble{background:var(--bubble)}
.k-data{stroke:var(--data)}.f-data{fill:var(--data)}.b-data{background:var(--data)}
.k-checkpoint{stroke:var(--checkpoint)}.f-checkpoint{fill:var(--checkpoint)}.b-checkpoint{background:var(--checkpoint)}
.k-good{stroke:var(--good)}.f-good{fill:var(--good)}.b-good{background:var(--good)}
.k-warn{stroke:var(--warn)}.f-warn{fill:var(--warn)}.b-warn{background:var(--warn)}
.k-bad{stroke:var(--bad)}.f-bad{fill:var(--bad)}.b-bad{background:var(--bad)}
.k-s0{stroke:var(--s0)}.f-s0{fill:var(--s0)}.b-s0{background:var(--s0)}
.k-s1{stroke:var(--s1)}.f-s1{fill:var(--s1)}.b-s1{background:var(--s1)}
.k-s2{stroke:var(--s2)}.f-s2{fill:var(--s2)}.b-s2{background:var(--s2)}
.k-s3{stroke:var(--s3)}.f-s3{fill:var(--s3)}.b-s3{background:var(--s3)}
.k-s4{stroke:var(--s4)}.f-s4{fill:var(--s4)}.b-s4{background:var(--s4)}
.k-s5{stroke:var(--s5)}.f-s5{fill:var(--s5)}.b-s5{background:var(--s5)}
.k-s6{stroke:var(--s6)}.f-s6{fill:var(--s6)}.b-s6{background:var(--s6)}
.k-s7{stroke:var(--s7)}.f-s7{fill:var(--s7)}.b-s7{background:var(--s7)}
)css";

}  // namespace rw
