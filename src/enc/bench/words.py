"""The vocabulary of generated messages."""

WORDS = """
a about after again all also and any are as at back bring bundle but by call can check come copy could day did do done
draft early evening event every first fix for friday from get give go good group had have here house how i idea if in is
it just key know last later let like line list look make many maybe me meet message monday more morning move my need new
next night no node not note now of off ok old on once one open or order other our out over page people place plan point
proof question read ready right root run same say see seem send set she should show sign since small so some soon start
still summer take talk team tell than thanks that the their them then there they thing think this time to today tomorrow
too tree two up us use very wait want was way we week well were what when where which who why will with work would write
yes yesterday yet you your
""".split()

REACTIONS = ("👍", "❤️", "😂", "🎉", "👀", "🙏")
